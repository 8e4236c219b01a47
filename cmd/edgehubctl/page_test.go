package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/ota/api"
)

func TestAWebLink(t *testing.T) {
	until := time.Date(2026, 11, 22, 10, 20, 30, 0, time.UTC)
	h := newFakeHub(t).on("POST", api.WebCodes, sends(api.Code{Code: "a code&more", Expires: until}))
	link := "http://" + h.address + "/#code=a+code%26more"
	h.edgehubctl(t, "web").is(t, cli.Done, link+"\n", "Open it in a browser on this node, once, until "+until.Local().Format(time.TimeOnly)+".\nFrom another computer: see edgehubctl web --help.\n")
	h.edgehubctl(t, "web", "-o", "json").is(t, cli.Done, "{\n  \"link\": \""+strings.Replace(link, "&", `\u0026`, 1)+"\",\n  \"expires\": \"2026-11-22T10:20:30Z\"\n}\n", "")
	h.on("POST", api.WebCodes, sends(api.Code{})).edgehubctl(t, "web").has(t, cli.Failed, "", "the hub has sent no code")
	h.on("POST", api.WebCodes, answersWith(503, "too many codes")).edgehubctl(t, "web").is(t, cli.NotNow, "", "error: too many codes\n")
}

func TestEvents(t *testing.T) {
	h := newFakeHub(t).on("GET", api.Events, sends(api.EventList{Items: []api.Event{
		{Namespace: "shop", Kind: "Pod", Name: "web-1", Type: "Warning", Reason: "BackOff", Message: "Back-off restarting\nfailed container", Source: "kubelet", Count: 7, First: ago(5 * time.Hour), Last: ago(20 * time.Minute)},
		{Kind: "Node", Name: "edge-1", Type: "Normal", Reason: "NodeReady", Message: "ready", Last: ago(2 * time.Hour)},
	}}))
	h.edgehubctl(t, "events").is(t, cli.Done, `OBJECT           AGE    TYPE      REASON      MESSAGE
Pod shop/web-1   20m    Warning   BackOff     Back-off restarting failed
                                              container
Node edge-1      120m   Normal    NodeReady   ready
`, "")
	h.edgehubctl(t, "events", "-o", "wide").is(t, cli.Done, `OBJECT           AGE    TYPE      REASON      COUNT   FIRST   SOURCE    MESSAGE
Pod shop/web-1   20m    Warning   BackOff     7       5h      kubelet   Back-off restarting failed container
Node edge-1      120m   Normal    NodeReady   1       120m    -         ready
`, "")
	h.edgehubctl(t, "events", "-n", "none").is(t, cli.Done, "No Events of namespace none since the hub was started.\n", "")
	h.edgehubctl(t, "events", "-n", "none", "-o", "json").is(t, cli.Done, "{\n  \"items\": []\n}\n", "")
	newFakeHub(t).on("GET", api.Events, sends(api.EventList{})).edgehubctl(t, "events").is(t, cli.Done, "No Events since the hub was started.\n", "")
	if got := h.edgehubctl(t, "events", "-n", "shop", "-o", "json"); !strings.Contains(got.out, `"reason": "BackOff"`) || strings.Contains(got.out, "NodeReady") {
		t.Errorf("got %+v", got)
	}
}

// bundleOf is a bundle with this content.
func bundleOf(content string) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write([]byte(content)); err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return out.Bytes()
}

func TestABundleIsWritten(t *testing.T) {
	t.Chdir(t.TempDir())
	content := bundleOf("state\x1b[2J")
	h := newFakeHub(t).on("GET", api.Bundle, answersWith(200, string(content))).on("GET", api.Node, sends(api.NodeState{Node: "../Edge/1"}))
	got := h.edgehubctl(t, "bundle")
	if want := regexp.MustCompile(`^edgehub-\.\._.*\.tar\.gz: \d+ B\n$`); got.code != cli.Done || !want.MatchString(got.out) {
		t.Errorf("got %+v, want %v", got, want)
	}
	name, _, _ := strings.Cut(got.out, ": ")
	checkBundle(t, name, content)
	h.edgehubctl(t, "bundle", "--output-file=b.tgz", "-o", "json").has(t, cli.Done, `"file": "b.tgz"`, "")
	checkBundle(t, "b.tgz", content)
	h.edgehubctl(t, "bundle", "--output-file=-").is(t, cli.Done, string(content), "")

	h.on("GET", api.Bundle, answersWith(200, string(bundleOf("another"))))
	h.edgehubctl(t, "bundle", "--output-file=b.tgz").has(t, cli.Failed, "", "file exists")
	checkBundle(t, "b.tgz", content)
	h.edgehubctl(t, "bundle", "--output-file=none/b.tgz").has(t, cli.Failed, "", "no such file or directory")
}

func checkBundle(t *testing.T, name string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(name)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: got %q, %v", name, got, err)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%s: got %v, %v, want a file of mode 0600", name, info, err)
	}
}

// A terminal that is closed, or a connection to it that is lost, hangs up.
func TestAHangUpLeavesNoPart(t *testing.T) {
	started := make(chan *os.Process, 1) // taken once, by the answer
	h := newFakeHub(t).on("GET", api.Bundle, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, string(bundleOf("state")[:20]))
		_ = http.NewResponseController(w).Flush() // else it is the client's to notice
		if err := (<-started).Signal(syscall.SIGHUP); err != nil {
			t.Error(err)
		}
		<-r.Context().Done()
	})
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "--address", h.address, "bundle", "--output-file=b.tgz")
	cmd.Env = append(os.Environ(), programVariable+"=1")
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
	if got, want := errs.String(), "error: interrupted: the bundle was not written\n"; got != want || cmd.ProcessState.ExitCode() != int(cli.Undone) {
		t.Errorf("%v: %q, want %q", cmd.ProcessState, got, want)
	}
	if files, err := os.ReadDir(cmd.Dir); err != nil || len(files) > 0 {
		t.Errorf("got %v, %v", files, err)
	}
}
