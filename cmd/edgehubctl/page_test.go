package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/cmd/internal/completion/completiontest"
	"github.com/edgehub-io/edgehub/ota/nodeapi"
)

func TestAWebLink(t *testing.T) {
	until := time.Date(2026, 11, 22, 10, 20, 30, 0, time.UTC)
	h := newFakeHub(t).on("POST", nodeapi.WebCodes, sends(nodeapi.Code{Code: "a code&more", Expires: until}))
	link := "http://" + h.address + "/#code=a+code%26more"
	h.edgehubctl(t, "web").is(t, exitDone, link+"\n", "Open it in a browser on this node, once, until "+until.Local().Format(time.TimeOnly)+".\nFrom another computer: see edgehubctl web --help.\n")
	h.edgehubctl(t, "web", "-o", "json").is(t, exitDone, "{\n  \"link\": \""+strings.Replace(link, "&", `\u0026`, 1)+"\",\n  \"expires\": \"2026-11-22T10:20:30Z\"\n}\n", "")
	h.on("POST", nodeapi.WebCodes, sends(nodeapi.Code{})).edgehubctl(t, "web").has(t, exitFailed, "", "the hub has sent no code")
	h.on("POST", nodeapi.WebCodes, answersWith(503, "too many codes")).edgehubctl(t, "web").is(t, exitNotNow, "", "error: too many codes\n")
}

func TestEvents(t *testing.T) {
	h := newFakeHub(t).on("GET", nodeapi.Events, sends(nodeapi.EventList{Items: []nodeapi.Event{
		{Namespace: "shop", Kind: "Pod", Name: "web-1", Type: "Warning", Reason: "BackOff", Message: "Back-off restarting\nfailed container", Source: "kubelet", Count: 7, First: ago(5 * time.Hour), Last: ago(20 * time.Minute)},
		{Kind: "Node", Name: "edge-1", Type: "Normal", Reason: "NodeReady", Message: "ready", Last: ago(2 * time.Hour)},
	}}))
	h.edgehubctl(t, "events").is(t, exitDone, `OBJECT           AGE    TYPE      REASON      MESSAGE
Pod shop/web-1   20m    Warning   BackOff     Back-off restarting failed
                                              container
Node edge-1      120m   Normal    NodeReady   ready
`, "")
	h.edgehubctl(t, "events", "-o", "wide").is(t, exitDone, `OBJECT           AGE    TYPE      REASON      COUNT   FIRST   SOURCE    MESSAGE
Pod shop/web-1   20m    Warning   BackOff     7       5h      kubelet   Back-off restarting failed container
Node edge-1      120m   Normal    NodeReady   1       120m    -         ready
`, "")
	h.edgehubctl(t, "events", "-n", "none").is(t, exitDone, "No Events of namespace none since the hub was started.\n", "")
	h.edgehubctl(t, "events", "-n", "none", "-o", "json").is(t, exitDone, "{\n  \"items\": []\n}\n", "")
	newFakeHub(t).on("GET", nodeapi.Events, sends(nodeapi.EventList{})).edgehubctl(t, "events").is(t, exitDone, "No Events since the hub was started.\n", "")
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
	h := newFakeHub(t).on("GET", nodeapi.Bundle, answersWith(200, string(content))).on("GET", nodeapi.Node, sends(nodeapi.NodeState{Node: "../Edge/1"}))
	got := h.edgehubctl(t, "bundle")
	if want := regexp.MustCompile(`^edgehub-\.\._.*\.tar\.gz: \d+ B\n$`); got.code != exitDone || !want.MatchString(got.out) {
		t.Errorf("got %+v, want %v", got, want)
	}
	name, _, _ := strings.Cut(got.out, ": ")
	checkBundle(t, name, content)
	h.edgehubctl(t, "bundle", "--output-file=b.tgz", "-o", "json").has(t, exitDone, `"file": "b.tgz"`, "")
	checkBundle(t, "b.tgz", content)
	h.edgehubctl(t, "bundle", "--output-file=-").is(t, exitDone, string(content), "")

	h.on("GET", nodeapi.Bundle, answersWith(200, string(bundleOf("another"))))
	h.edgehubctl(t, "bundle", "--output-file=b.tgz").has(t, exitFailed, "", "file exists")
	checkBundle(t, "b.tgz", content)
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

func TestAPartOfABundleLeavesNothing(t *testing.T) {
	t.Chdir(t.TempDir())
	part := string(bundleOf(strings.Repeat("state", 1000))[:20])
	tests := map[string]struct {
		answer http.HandlerFunc
		err    string
	}{
		"it breaks off":     {breaksOff(part), "error: the hub has not sent a whole bundle: unexpected EOF\n"},
		"it ends too early": {answersWith(200, part), "error: the hub has not sent a whole bundle: unexpected EOF\n"},
		"it is no bundle":   {answersWith(200, "<html> of what is no hub"), "error: the hub has not sent a whole bundle: gzip: invalid header\n"},
		"it is refused":     {answersWith(500, "no space left"), "error: no space left\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := newFakeHub(t).on("GET", nodeapi.Bundle, tt.answer)
			h.edgehubctl(t, "bundle", "--output-file=b.tgz").is(t, exitFailed, "", tt.err)
			leftNothing(t)
		})
	}
	t.Run("there is no such folder", func(t *testing.T) {
		newFakeHub(t).on("GET", nodeapi.Bundle, answersWith(200, string(bundleOf("x")))).
			edgehubctl(t, "bundle", "--output-file=none/b.tgz").has(t, exitFailed, "", "no such file or directory")
	})
	t.Run("it is interrupted", func(t *testing.T) {
		ctx, interrupt := context.WithCancel(t.Context())
		h := newFakeHub(t).on("GET", nodeapi.Bundle, func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, part)
			_ = http.NewResponseController(w).Flush() // else it is the client's to notice
			interrupt()
			<-r.Context().Done()
		})
		var out, errs strings.Builder
		code := run(ctx, []string{"--address", h.address, "bundle", "--output-file=b.tgz"}, streams{&out, &errs}, hurried())
		result{code, out.String(), errs.String()}.is(t, exitUndone, "", "error: interrupted: the bundle was not written\n")
		leftNothing(t)
	})
}

// A terminal that is closed, or a connection to it that is lost, hangs up.
func TestAHangUpLeavesNoPart(t *testing.T) {
	started := make(chan *os.Process, 1) // taken once, by the answer
	h := newFakeHub(t).on("GET", nodeapi.Bundle, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, string(bundleOf("state")[:20]))
		_ = http.NewResponseController(w).Flush() // else it is the client's to notice
		if err := (<-started).Signal(syscall.SIGHUP); err != nil {
			t.Error(err)
		}
		<-r.Context().Done()
	})
	dir := completiontest.New(t, "edgehubctl").Dir
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "edgehubctl"), "--address", h.address, "bundle", "--output-file=b.tgz")
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
	if got, want := errs.String(), "error: interrupted: the bundle was not written\n"; got != want || cmd.ProcessState.ExitCode() != int(exitUndone) {
		t.Errorf("%v: %q, want %q", cmd.ProcessState, got, want)
	}
	t.Chdir(cmd.Dir)
	leftNothing(t)
}

func leftNothing(t *testing.T) {
	t.Helper()
	if files, err := filepath.Glob("*"); err != nil || len(files) > 0 {
		t.Errorf("got %v, %v", files, err)
	}
}

func TestAnOlderHubHasNoPage(t *testing.T) {
	for _, code := range []int{404, 405} {
		no := answersWith(code, "no such path")
		h := newFakeHub(t).on("GET", nodeapi.Events, no).on("GET", nodeapi.Node, no).on("GET", nodeapi.Bundle, no).on("POST", nodeapi.WebCodes, no)
		for _, line := range []string{"events", "web", "bundle", "bundle --output-file=b.tgz", "bundle --output-file=-"} {
			h.edgehubctl(t, strings.Fields(line)...).is(t, exitFailed, "", tooOld)
		}
	}
}
