package imagepull

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/metric"
	"github.com/edgehub-io/edgehub/test/internal/poll"
	"github.com/edgehub-io/edgehub/test/internal/rawclient"
)

// answer is what a caller of the node's API gets to see. code is 0 where there was none.
type answer struct {
	code int
	body string
	took time.Duration
}

func (a answer) String() string {
	return fmt.Sprintf("%d after %v: %.600q", a.code, a.took.Round(time.Millisecond), a.body)
}

func (r *rig) call(method, path string) (a answer) {
	ctx, cancel := context.WithTimeout(r.Context(), poll.Patience)
	defer cancel()
	began := time.Now()
	a.code, a.body = rawclient.Ask(ctx, method, r.hub.API+path)
	a.took = time.Since(began)
	return a
}

// expect fails the test unless the answer has this code and these words.
func (r *rig) expect(a answer, code int, says string) {
	r.Helper()
	if a.code != code || !strings.Contains(a.body, says) {
		r.Errorf("got %v; want %d and %q", a, code, says)
	}
}

// read reads what the API answers with 200.
func (r *rig) read(path string, into any) {
	r.Helper()
	a := r.call(http.MethodGet, path)
	r.expect(a, http.StatusOK, "")
	if err := json.Unmarshal([]byte(a.body), into); err != nil {
		r.Fatalf("%v: %v", a, err)
	}
}

func (r *rig) path(pod string) string { return api.ImagePullPath(r.namespace, pod) }

// soon is how long an answer may take that waits neither for containerd nor for a
// registry, and for the cloud only until that counts as lost: after 2.5 s, if the hub is
// not told otherwise. With the cloud there it takes some milliseconds.
const soon = 4 * time.Second

// ask asks for the images of a pod's target, which has to be answered at once.
func (r *rig) ask(pod string) {
	r.Helper()
	a := r.call(http.MethodPost, r.path(pod))
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
func (r *rig) state(pod string) (s api.ImagePull) {
	r.Helper()
	if r.call(http.MethodGet, r.path(pod)).code != http.StatusNotFound {
		r.read(r.path(pod), &s)
	}
	return s
}

// awaitState waits until the pre-pull of a pod is as holds wants.
func (r *rig) awaitState(pod, what string, holds func(api.ImagePull) bool) (last api.ImagePull) {
	r.Helper()
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

func (r *rig) awaitReady(pod string) api.ImagePull {
	r.Helper()
	return r.awaitState(pod, "the images for "+pod+" are on the node", func(s api.ImagePull) bool { return s.State == api.Ready })
}

// awaitFailure waits until the first image of a pod's pre-pull has failed, and why.
func (r *rig) awaitFailure(pod, reason string) api.Image {
	r.Helper()
	s := r.awaitState(pod, "the pull for "+pod+" fails with "+reason, func(s api.ImagePull) bool {
		return len(s.Images) > 0 && s.Images[0].State == api.Failed && s.Images[0].Reason == reason // and not that of an attempt before
	})
	if text := s.Images[0].LastError; text == "" || strings.Contains(text, "\n") {
		r.Errorf("the failure %s is not told in one line: %q", reason, text)
	}
	r.Logf("%s: %s", reason, s.Images[0].LastError)
	return s.Images[0]
}

// watch follows a pre-pull until the hub ends the stream.
func (r *rig) watch(pod string) (seen []api.ImagePull) {
	r.Helper()
	a := r.call(http.MethodGet, r.path(pod)+"?watch=true")
	r.expect(a, http.StatusOK, "")
	for line := range strings.Lines(a.body) {
		var s api.ImagePull
		r.must(json.Unmarshal([]byte(line), &s))
		seen = append(seen, s)
	}
	return seen
}

// list is the whole queue.
func (r *rig) list() []api.ImagePull {
	r.Helper()
	var l api.ImagePullList
	r.read(api.ImagePulls, &l)
	return l.Items
}

// metric is the sum of a metric over all lines with these labels.
func (r *rig) metric(name string, labels ...string) float64 {
	r.Helper()
	sum, found, err := metric.Sum(r.call(http.MethodGet, api.Metrics).body, name, labels...)
	r.must(err)
	if !found {
		r.Errorf("there is no metric %s%v", name, labels)
	}
	return sum
}
