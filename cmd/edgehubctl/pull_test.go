package main

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/ota/api"
)

const asked = "Image pre-pull requested for pod shop/web-1"

// pulls answers a request for a pre-pull, and then its watches, one after the other.
func pulls(t *testing.T, watches ...http.HandlerFunc) *fakeHub {
	return newFakeHub(t).on("POST", pullOf, answersWith(200, asked)).on("GET", watchOf, watches...)
}

func TestAPullIsFollowedToItsEnd(t *testing.T) {
	h := pulls(t, answersWith(200, lines(
		imagePull(api.Queued, image("app:1", api.Queued, 0, 0), image("init:1", api.Queued, 0, 0)),
		imagePull(api.Pulling, image("app:1", api.Pulling, 0, 0), image("init:1", api.Queued, 0, 0)),
		imagePull(api.Pulling, image("app:1", api.Pulling, 10*mib, 100*mib), image("init:1", api.Queued, 0, 0)),
		imagePull(api.Pulling, image("app:1", api.Pulling, 12*mib, 100*mib), image("init:1", api.Queued, 0, 0)),
		imagePull(api.Pulling, image("app:1", api.Failed, 12*mib, 100*mib, failing("RegistryUnreachable", "no route", 30*time.Second)), image("init:1", api.Queued, 0, 0)),
		imagePull(api.Pulling, image("app:1", api.Pulling, 95*mib, 100*mib, func(i *api.Image) { i.Attempts = 2 }), image("init:1", api.Ready, 5*mib, 5*mib)),
		imagePull(api.Ready, image("app:1", api.Ready, 100*mib, 100*mib), image("init:1", api.Ready, 5*mib, 5*mib)),
	)))
	got := h.edgehubctl(t, "pull", "shop/web-1")
	last := got.out[max(0, strings.Index(got.out, "All images")):]
	if !strings.HasPrefix(last, "All images are on the node, after ") || !strings.HasSuffix(last, "s.\nTo upgrade: edgehubctl upgrade shop/web-1\n") {
		t.Errorf("it ends in %q", last)
	}
	got.out = strings.TrimSuffix(got.out, last)
	got.is(t, cli.Done, asked+`
app:1: queued
init:1: queued
app:1: pulling
app:1: pulling, 10%, 10.0 of 100.0 MiB
app:1: failed, again in 30s: no route
app:1: pulling, attempt 2, 95%, 95.0 of 100.0 MiB
init:1: ready, 5.0 MiB
app:1: ready, 100.0 MiB
`, "")
}

func TestHowAPullEnds(t *testing.T) {
	forever := failing("InvalidImageName", `"APP" is no name of an image`, 0)
	pulling := imagePull(api.Pulling, image("app:1", api.Pulling, 1, 4))
	other := imagePull(api.Pulling, image("app:2", api.Pulling, 1, 4))
	other.Revision = "8aaa"
	tests := map[string]struct {
		watches []http.HandlerFunc
		code    int
		err     string
	}{
		"it is ready at once": {[]http.HandlerFunc{hangs(lines(imagePull(api.Ready, image("app:1", api.Ready, 4, 4))))}, cli.Done, ""},
		"it is cancelled": {[]http.HandlerFunc{hangs(lines(pulling, imagePull(api.Cancelled, image("app:1", api.Queued, 1, 4))))}, cli.Failed,
			"error: somebody has cancelled the pull for pod shop/web-1\n"},
		"the target has changed": {[]http.HandlerFunc{hangs(lines(pulling, imagePull(api.Superseded, image("app:1", api.Queued, 1, 4))))}, cli.NotNow,
			"error: pod shop/web-1 is no longer to be upgraded to revision 7c9b: edgehubctl pods shows what it needs\n"},
		"it cannot be": {[]http.HandlerFunc{hangs(lines(imagePull(api.Failed, image("app:1", api.Ready, 4, 4), image("APP", api.Failed, 0, 0, forever))))}, cli.Failed,
			`error: the images for pod shop/web-1 cannot be pulled: APP: failed for good: "APP" is no name of an image` + "\n"},
		"one cannot be, but others are not through": {[]http.HandlerFunc{answersWith(200, lines(
			imagePull(api.Pulling, image("APP", api.Failed, 0, 0, forever), image("app:1", api.Failed, 1, 4, failing("X", "x", time.Second))),
			imagePull(api.Failed, image("APP", api.Failed, 0, 0, forever), image("app:1", api.Ready, 4, 4))))}, cli.Failed,
			`error: the images for pod shop/web-1 cannot be pulled: APP: failed for good: "APP" is no name of an image` + "\n"},
		"the stream breaks off": {[]http.HandlerFunc{breaksOff(lines(pulling)), answersWith(200, lines(imagePull(api.Ready, image("app:1", api.Ready, 4, 4))))}, cli.Done,
			"the hub has ended its answer; the pull goes on when it does\n"},
		"the stream breaks off in the middle of a line": {[]http.HandlerFunc{breaksOff(lines(pulling)[:20]), answersWith(200, lines(imagePull(api.Ready, image("app:1", api.Ready, 4, 4))))}, cli.Done,
			"the hub has ended its answer; the pull goes on when it does\n"},
		"the stream ends too early": {[]http.HandlerFunc{answersWith(200, lines(pulling)), answersWith(200, lines(imagePull(api.Ready, image("app:1", api.Ready, 4, 4))))}, cli.Done,
			"the hub has ended its answer; the pull goes on when it does\n"},
		"the hub is not up yet": {[]http.HandlerFunc{answersWith(200, ""), answersWith(500, "not ready: caches"), answersWith(500, "not ready: caches"), answersWith(200, lines(imagePull(api.Ready, image("app:1", api.Ready, 4, 4))))}, cli.Done,
			"the hub has ended its answer; the pull goes on when it does\nnot ready: caches; the pull goes on when it does\n"},
		"another one has come in its place": {[]http.HandlerFunc{breaksOff(lines(pulling)), hangs(lines(other))}, cli.NotNow,
			"the hub has ended its answer; the pull goes on when it does\nerror: pod shop/web-1 is to be upgraded to revision 8aaa by now, not to 7c9b: pull again\n"},
		"it is gone": {[]http.HandlerFunc{breaksOff(lines(pulling)), answersWith(404, "no images are being pulled for pod shop/web-1")}, cli.Failed,
			"the hub has ended its answer; the pull goes on when it does\nerror: no images are being pulled for pod shop/web-1\n"},
		"the hub came up again without containerd": {[]http.HandlerFunc{breaksOff(lines(pulling)), answersWith(501, "this hub cannot pull images")}, cli.Failed,
			"the hub has ended its answer; the pull goes on when it does\nerror: this hub cannot pull images\n"},
		"the answer makes no sense": {[]http.HandlerFunc{answersWith(200, lines(pulling)+"<html>")}, cli.Failed,
			"error: the hub's answer is not understood, it may be of another version: invalid character '<' looking for beginning of value\n"},
		"the answer is of another kind": {[]http.HandlerFunc{answersWith(200, `{"images":7}`)}, cli.Failed,
			"error: the hub's answer is not understood, it may be of another version: json: cannot unmarshal number into Go struct field ImagePull.images of type []api.Image\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := pulls(t, tt.watches...).edgehubctl(t, "pull", "shop/web-1")
			if got.code != tt.code || got.err != tt.err {
				t.Errorf("got exit code %d, want %d; on stderr\n%swant\n%s", got.code, tt.code, got.err, tt.err)
			}
		})
	}
}

func TestWhatTheHubRefusesIsSaid(t *testing.T) {
	for code, want := range map[int]int{403: cli.NotNow, 409: cli.NotNow, 503: cli.NotNow, 404: cli.Failed, 400: cli.Failed, 501: cli.Failed, 500: cli.Failed} {
		for _, line := range []string{"pull shop/web-1", "pull shop/web-1 --no-wait -o json", "upgrade --no-pull shop/web-1", "upgrade --no-pull shop/web-1 --wait", "rollback shop/web-1"} {
			no := answersWith(code, "pod shop/web-1 this and that\n")
			newFakeHub(t).on("GET", "/pods", podList(old())).on("POST", pullOf, no).on("POST", upgradeOf, no).on("POST", rollbackOf, no).
				edgehubctl(t, strings.Fields(line)...).is(t, want, "", "error: pod shop/web-1 this and that\n")
		}
	}
}

// Whoever writes a DaemonSet, or answers in place of a hub, must not command a terminal.
func TestNothingThatIsShownIsACommandForATerminal(t *testing.T) {
	const hostile = "\x1b]0;owned\a\u009b2J\u202e"
	state := imagePull(api.Failed, image("app"+hostile, api.Failed, 0, 0, failing("InvalidImageName", "no"+hostile, 0)))
	tests := map[string][]string{
		"as text": {"pull", "shop/web-1"},
		"as JSON": {"pull", "-o", "json", "shop/web-1"},
	}
	for name, args := range tests {
		t.Run(name, func(t *testing.T) {
			got := pulls(t, answersWith(200, lines(state))).edgehubctl(t, args...)
			if text := got.out + got.err; strings.ContainsAny(text, "\x1b\a\u009b\u202e") || !strings.Contains(text, `\u009b`) {
				t.Errorf("got %q", text)
			}
		})
	}
	refused := newFakeHub(t).on("POST", pullOf, answersWith(403, "no"+hostile)).edgehubctl(t, "pull", "shop/web-1")
	if strings.ContainsAny(refused.err, "\x1b\a\u009b\u202e") {
		t.Errorf("got %q", refused.err)
	}
}

func TestAPullIsNotWaitedForLongerThanTheTimeout(t *testing.T) {
	pulling := lines(imagePull(api.Pulling, image("app:1", api.Pulling, 1, 4), image("b", api.Ready, 4, 4)))
	const goesOn = " The hub goes on with it; to end that: edgehubctl pull --cancel shop/web-1\n"
	tests := map[string]struct {
		watch http.HandlerFunc
		err   string
	}{
		"while it fails":         {hangs(lines(imagePull(api.Failed, image("a", api.Failed, 0, 0, failing("X", "no such tag", time.Hour+30*time.Second))))), "error: not done after 1s: a: failed, again in 60m: no such tag." + goesOn},
		"while nothing is said":  {hangs(""), "error: not done after 1s: the hub has not said how far it is." + goesOn},
		"while the hub restarts": {breaksOff(pulling), "the hub has ended its answer; the pull goes on when it does\nerror: not done after 1s: 1 of 2 images on the node." + goesOn},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := pulls(t, tt.watch).edgehubctl(t, "pull", "shop/web-1", "--timeout=1s")
			if got.code != cli.Undone || got.err != tt.err {
				t.Errorf("got exit code %d and\n%swant\n%s", got.code, got.err, tt.err)
			}
		})
	}
}

func TestAnInterruptLeavesThePullToTheHub(t *testing.T) {
	h := pulls(t, hangs(lines(imagePull(api.Pulling, image("app:1", api.Pulling, 1, 4)))))
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	out := onWrite(func(text string) {
		if strings.Contains(text, "app:1") {
			interrupt()
		}
	})
	var errs bytes.Buffer
	code := run(ctx, []string{"--address", h.address, "pull", "shop/web-1"}, out, &errs, hurried())
	result{code, "", errs.String()}.is(t, cli.Undone, "", "error: interrupted: 0 of 1 image on the node. The hub goes on with it; to end that: edgehubctl pull --cancel shop/web-1\n")
	if h.count("DELETE "+pullOf) != 0 {
		t.Error("the pull was cancelled")
	}
}

// onWrite is an output that is called with what is written to it.
type onWrite func(text string)

func (f onWrite) Write(p []byte) (int, error) {
	f(string(p))
	return len(p), nil
}

func TestAPullThatIsNotWaitedFor(t *testing.T) {
	h := pulls(t, hangs("")).on("GET", pullOf, sends(imagePull(api.Queued)))
	h.edgehubctl(t, "pull", "shop/web-1", "--no-wait").is(t, cli.Done, asked+"\n", "")
	h.edgehubctl(t, "pull", "web-1", "-n", "shop", "--no-wait").is(t, cli.Done, asked+"\n", "")
	h.edgehubctl(t, "pull", "shop/web-1", "--no-wait", "-o", "json").has(t, cli.Done, `"state": "Queued"`, "")
	if n := h.count("GET " + watchOf); n != 0 {
		t.Errorf("it was watched %d times", n)
	}
}

func TestAPodWithoutANamespaceIsInDefault(t *testing.T) {
	newFakeHub(t).on("POST", "/openyurt.io/v1/namespaces/default/pods/web-1/imagepull", answersWith(200, "yes")).
		edgehubctl(t, "pull", "web-1", "--no-wait").is(t, cli.Done, "yes\n", "")
}

func TestAPullIsCancelled(t *testing.T) {
	h := newFakeHub(t).on("DELETE", pullOf, answersWith(200, "Image pre-pull cancelled for pod shop/web-1"))
	h.edgehubctl(t, "pull", "--cancel", "shop/web-1").is(t, cli.Done, "Image pre-pull cancelled for pod shop/web-1\n", "")
}

func TestAPullAsJSONIsALineForEachChange(t *testing.T) {
	all := lines(imagePull(api.Pulling, image("app:1", api.Pulling, 1, 4)), imagePull(api.Ready, image("app:1", api.Ready, 4, 4)))
	pulls(t, breaksOff(all[:strings.Index(all, "\n")+1]), answersWith(200, all)).edgehubctl(t, "pull", "shop/web-1", "-o", "json").
		is(t, cli.Done, all, "the hub has ended its answer; the pull goes on when it does\n")
}
