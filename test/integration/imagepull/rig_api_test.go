package imagepull

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/edgehub-io/edgehub/ota/nodeapi"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// answer is what a caller of the node's API gets to see.
type answer struct {
	code int
	body string
	took time.Duration
	err  error
}

func (a answer) String() string {
	if a.err != nil {
		return a.err.Error()
	}
	return fmt.Sprintf("%d after %v: %.600q", a.code, a.took.Round(time.Millisecond), a.body)
}

// caller is somebody with curl: each call has a connection of its own.
func caller() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: poll.Patience}
}

func (r *rig) call(ctx context.Context, method, path string) answer {
	began := time.Now()
	req, err := http.NewRequestWithContext(ctx, method, r.hub.API+path, http.NoBody)
	if err != nil {
		return answer{err: err}
	}
	res, err := caller().Do(req)
	if err != nil {
		return answer{err: err, took: time.Since(began)}
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, string(body), time.Since(began), err}
}

// expect fails the test unless the answer has this code and these words.
func (r *rig) expect(a answer, code int, says string) {
	r.Helper()
	if a.err != nil || a.code != code || !strings.Contains(a.body, says) {
		r.Errorf("got %v; want %d and %q", a, code, says)
	}
}

func (r *rig) path(pod string) string { return nodeapi.ImagePullPath(r.namespace, pod) }

// soon is how long an answer may take that waits neither for containerd nor for a
// registry, and for the cloud only until that counts as lost: after 2.5 s, if the hub is
// not told otherwise. With the cloud there it takes some milliseconds.
const soon = 4 * time.Second

// ask asks for the images of a pod's target, which has to be answered at once.
func (r *rig) ask(pod string) {
	r.Helper()
	a := r.call(r.Context(), http.MethodPost, r.path(pod))
	r.expect(a, http.StatusOK, "Image pre-pull requested for pod "+r.namespace+"/"+pod)
	if a.took > soon {
		r.Errorf("the request was answered after %v", a.took)
	}
}

// askOnceMarked asks as soon as the hub knows that the pod needs an upgrade.
func (r *rig) askOnceMarked(pod string) {
	r.Helper()
	r.awaitMark(pod)
	r.ask(pod)
}

// awaitMark returns when the node's API shows that the pod needs an upgrade.
func (r *rig) awaitMark(pod string) {
	r.Helper()
	r.eventually("the hub knows that "+pod+" is marked", func() bool { return r.knowsMark(pod) })
}

// state is how far the pre-pull of a pod is; nothing where there is none.
func (r *rig) state(pod string) nodeapi.ImagePull {
	r.Helper()
	a := r.call(r.Context(), http.MethodGet, r.path(pod))
	if a.err == nil && a.code == http.StatusNotFound {
		return nodeapi.ImagePull{}
	}
	r.expect(a, http.StatusOK, "")
	var s nodeapi.ImagePull
	if err := json.Unmarshal([]byte(a.body), &s); err != nil {
		r.Fatalf("%v: %v", a, err)
	}
	return s
}

// awaitState waits until the pre-pull of a pod is as holds wants.
func (r *rig) awaitState(pod, what string, holds func(nodeapi.ImagePull) bool) nodeapi.ImagePull {
	r.Helper()
	var last nodeapi.ImagePull
	defer func() {
		if r.Failed() {
			r.Logf("the last state of %s is %+v", pod, last)
		}
	}()
	r.eventually(what, func() bool {
		last = r.state(pod)
		return holds(last)
	})
	return last
}

func (r *rig) awaitReady(pod string) nodeapi.ImagePull {
	r.Helper()
	return r.awaitState(pod, "the images for "+pod+" are on the node", func(s nodeapi.ImagePull) bool { return s.State == nodeapi.Ready })
}

// awaitFailure waits until the first image of a pod's pre-pull has failed, and why.
func (r *rig) awaitFailure(pod, reason string) nodeapi.Image {
	r.Helper()
	s := r.awaitState(pod, "the pull for "+pod+" fails with "+reason, func(s nodeapi.ImagePull) bool {
		return len(s.Images) > 0 && s.Images[0].State == nodeapi.Failed && s.Images[0].Reason == reason // and not that of an attempt before
	})
	if text := s.Images[0].LastError; text == "" || strings.Contains(text, "\n") {
		r.Errorf("the failure %s is not told in one line: %q", reason, text)
	}
	r.Logf("%s: %s", reason, s.Images[0].LastError)
	return s.Images[0]
}

// watch follows a pre-pull until the hub ends the stream, or each returns false.
func (r *rig) watch(pod string, each func(nodeapi.ImagePull) bool) error {
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, r.hub.API+r.path(pod)+"?watch=true", http.NoBody)
	if err != nil {
		return err
	}
	res, err := caller().Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		var s nodeapi.ImagePull
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return fmt.Errorf("line %q of a watch: %w", lines.Text(), err)
		}
		if !each(s) {
			return nil
		}
	}
	return lines.Err()
}

// list is the whole queue.
func (r *rig) list() []nodeapi.ImagePull {
	r.Helper()
	a := r.call(r.Context(), http.MethodGet, nodeapi.ImagePulls)
	r.expect(a, http.StatusOK, "")
	var l nodeapi.ImagePullList
	if err := json.Unmarshal([]byte(a.body), &l); err != nil {
		r.Fatalf("%v: %v", a, err)
	}
	return l.Items
}

// metric is the value of a metric, written as it is served: with its labels, if any.
func (r *rig) metric(name string) float64 {
	r.Helper()
	for line := range strings.Lines(r.call(r.Context(), http.MethodGet, nodeapi.Metrics).body) {
		text, found := strings.CutPrefix(line, name+" ")
		if !found {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		r.must(err)
		return value
	}
	r.Errorf("there is no metric %s", name)
	return 0
}

// logged reports whether the hub's log has a line with all of these words.
func (r *rig) logged(words ...string) bool {
	r.Helper()
	text, err := os.ReadFile(r.hub.Log)
	r.must(err)
	for line := range strings.Lines(string(text)) {
		found := 0
		for _, w := range words {
			if strings.Contains(line, w) {
				found++
			}
		}
		if found == len(words) {
			return true
		}
	}
	return false
}
