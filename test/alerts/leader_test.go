package alerts

import (
	"context"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// moduleRoot is the product's, seen from this folder.
const moduleRoot = "../.."

// What the controller's main function adds is seen where the world sees it.
func TestTheControllerTellsWhoLeads(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "edgehub-controller")
	build := exec.CommandContext(t.Context(), "go", "build", "-tags=grpcnotrace", "-o", binary, "./cmd/edgehub-controller")
	build.Dir = moduleRoot
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	addr := "127.0.0.1:" + freePort(t)
	cmd := exec.CommandContext(ctx, binary, "--kubeconfig="+writeKubeconfig(t), "--leader-elect=false", "--metrics-addr="+addr, "--health-probe-addr="+addr)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = cmd.Wait() }()
	var got string
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		if got = metrics(ctx, addr); strings.Contains(got, leaderMetric+" 1\n") {
			tick.Stop()
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s is not 1 on /metrics:\n%s", leaderMetric, got)
		}
	}
	all := everything(t)
	for line := range strings.Lines(got) {
		name, ok := strings.CutPrefix(line, "# TYPE ")
		if name, _, _ = strings.Cut(name, " "); ok && all[name] == nil {
			t.Errorf("/metrics has %s, which the registry does not know", name)
		}
	}
}

func metrics(ctx context.Context, addr string) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", http.NoBody)
	if err != nil {
		return err.Error()
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return err.Error()
	}
	return string(body)
}
