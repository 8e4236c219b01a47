package main

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
)

// programVariable makes the test binary kubectl-edgehub itself.
const programVariable = "KUBECTL_EDGEHUB_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// A terminal that is closed, or a connection to it that is lost, hangs up.
func TestAHangUpIsAnInterruption(t *testing.T) {
	key, err := x509.MarshalPKCS8PrivateKey(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600); err != nil {
		t.Fatal(err)
	}
	started := make(chan *os.Process, 1) // taken once, by the answer
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if err := (<-started).Signal(syscall.SIGHUP); err != nil {
			t.Error(err)
		}
		<-r.Context().Done()
	}))
	defer server.Close()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "bundle", "ds/web", "-n", "shop", "--server", server.URL, "--key", path, "-o", "web.bundle")
	cmd.Env = append(os.Environ(), programVariable+"=1", "KUBECONFIG="+path+".none")
	var errs strings.Builder
	cmd.Dir, cmd.Stderr = t.TempDir(), &errs
	// Where the tests were started by nohup, the program would heed that: who handles a signal hands on none of it.
	hangUps := make(chan os.Signal, 1)
	signal.Notify(hangUps, syscall.SIGHUP)
	defer signal.Stop(hangUps)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	started <- cmd.Process
	_ = cmd.Wait() // the exit code shows how it has ended
	if got, want := errs.String(), "error: interrupted: web.bundle was not written\n"; got != want || cmd.ProcessState.ExitCode() != cli.Failed {
		t.Errorf("%v: %q, want %q", cmd.ProcessState, got, want)
	}
}
