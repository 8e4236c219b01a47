package ota

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/ota/api"
)

var holdWeb1 = api.HoldPath("default", "web-1")

// holds stands for package hold, which has its own tests.
type holds struct {
	err  error
	asks []string
	held bool // web-1
}

var heldUntil = time.Date(2026, 5, 6, 9, 8, 9, 0, time.UTC)

func (h *holds) Set(pod *corev1.Pod, policy api.Policy, length time.Duration, reason string) (api.Hold, error) {
	h.asks = append(h.asks, fmt.Sprintf("%s %v of %v %q", pod.Name, length, policy.MaxHold, reason))
	return api.Hold{Namespace: pod.Namespace, Pod: pod.Name, Until: heldUntil.In(time.FixedZone("", 3600))}, h.err
}

func (h *holds) State(pod types.NamespacedName) (api.Hold, bool) {
	return api.Hold{Namespace: pod.Namespace, Pod: pod.Name, Until: heldUntil, Reason: "driving"}, h.held
}

func (h *holds) Of(pod *corev1.Pod) (api.Hold, bool) { return h.State(nameOf(pod)) }

func (h *holds) Remove(types.NamespacedName) (bool, error) { return h.held, h.err }

func TestHoldAnswers(t *testing.T) {
	withPolicy := func(value string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Annotations = map[string]string{api.PolicyAnnotation: value} }
	}
	upToDate := func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }
	tooLong := fmt.Errorf("%w, 24h0m0s, since yesterday", ErrHeldTooLong)
	tests := map[string]struct {
		query   string
		pod     func(*corev1.Pod)
		list    http.HandlerFunc
		offline string
		err     error
		code    int
		says    string // all of a success
		asks    string
	}{
		"a hold":                         {query: "for=2h&reason=driving%20home", code: 200, says: "Hold of pod default/web-1 until 2026-05-06T09:08:09Z", asks: `web-1 2h0m0s of 24h0m0s "driving home"`},
		"a pod of a StatefulSet":         {query: "for=2h", pod: ofStatefulSet, code: 200, says: "Hold of pod default/web-1 until 2026-05-06T09:08:09Z", asks: `web-1 2h0m0s of 24h0m0s ""`},
		"without a reason":               {query: "for=90s", code: 200, says: "Hold of pod default/web-1 until 2026-05-06T09:08:09Z", asks: `web-1 1m30s of 24h0m0s ""`},
		"a pod that needs no upgrade":    {query: "for=24h", pod: upToDate, code: 200, says: "Hold of pod default/web-1 until 2026-05-06T09:08:09Z", asks: `web-1 24h0m0s of 24h0m0s ""`},
		"the policy permits more":        {query: "for=48h", pod: withPolicy(`{"maxHold":172800000000000,"history":1}`), code: 200, says: "Hold of pod default/web-1 until 2026-05-06T09:08:09Z", asks: `web-1 48h0m0s of 48h0m0s ""`},
		"offline, from the cache":        {query: "for=2h", offline: "offline since yesterday", code: 200, says: "Hold of pod default/web-1 until 2026-05-06T09:08:09Z", asks: `web-1 2h0m0s of 24h0m0s ""`},
		"the policy permits none":        {query: "for=2h", pod: withPolicy(`{"maxHold":0,"history":1}`), code: 403, says: "annotation apps.openyurt.io/max-hold of its DaemonSet or StatefulSet forbids it"},
		"the policy cannot be read":      {query: "for=2h", pod: withPolicy(`{`), code: 403, says: "it is not known whether pod default/web-1 may be held"},
		"the policy is forged":           {query: "for=9000h", pod: withPolicy(`{"maxHold":9223372036854775807,"history":1}`), code: 403, says: "it is not known whether"},
		"the maximum is reached":         {query: "for=2h", err: tooLong, code: 403, says: "24h0m0s, since yesterday; it can be held again 1h0m0s after its last hold, or when it was upgraded", asks: `web-1 2h0m0s of 24h0m0s ""`},
		"the disk is full":               {query: "for=2h", err: errors.New("no space left"), code: 500, says: "is not held, since that could not be written down: no space left", asks: `web-1 2h0m0s of 24h0m0s ""`},
		"for how long?":                  {code: 400, says: `for="" is not how long this pod can be held: write a duration such as 2h or 30m, from 1s to 24h0m0s`},
		"longer than the maximum":        {query: "for=24h0m1s", code: 400, says: "from 1s to 24h0m0s"},
		"no time at all":                 {query: "for=0s", code: 400, says: "from 1s to"},
		"less than that":                 {query: "for=-2h", code: 400, says: "from 1s to"},
		"no duration":                    {query: "for=tomorrow", code: 400, says: `for="tomorrow" is not`},
		"an unknown parameter":           {query: "for=2h&until=noon", code: 400, says: `"until" is no parameter: there are for and reason`},
		"a reason of two lines":          {query: "for=2h&reason=" + url.QueryEscape("a\nb"), code: 400, says: "reason is not one line of printable text of at most 200 bytes"},
		"a reason with escape sequences": {query: "for=2h&reason=%1b%5b31m", code: 400, says: "reason is not"},
		"a reason that is no text":       {query: "for=2h&reason=%ff", code: 400, says: "reason is not"},
		"a reason that turns text round": {query: "for=2h&reason=" + url.QueryEscape("\u202e"), code: 400, says: "reason is not"},
		"a reason that is too long":      {query: "for=2h&reason=" + strings.Repeat("x", 201), code: 400, says: "reason is not"},
		"a deleted pod":                  {query: "for=2h", pod: func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: heldUntil} }, code: 403, says: "being deleted already"},
		"nobody's pod":                   {query: "for=2h", pod: func(p *corev1.Pod) { p.OwnerReferences = nil }, code: 400, says: "no controlling owner"},
		"a pod that does not exist":      {query: "for=2h", list: podList(), code: 404, says: "there is no pod default/web-1"},
		"unknown to a node offline":      {query: "for=2h", list: podList(), offline: "offline since yesterday", code: 404, says: "there is no pod default/web-1 on this node, node-1 (offline since yesterday)"},
		"an empty cache":                 {query: "for=2h", list: away, code: 503, says: "look up pod default/web-1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pod := upgradable()
			if tt.pod != nil {
				tt.pod(pod)
			}
			list := tt.list
			if list == nil {
				list = podList(pod)
			}
			h := &holds{err: tt.err}
			c := &cloud{list: list, delete: refuse(apierrors.NewNotFound(podResource, "web-1"))}
			call(t, "POST", c.start(t, Options{Holds: h, Offline: func() string { return tt.offline }})+holdWeb1+"?"+tt.query).wants(t, tt.code, tt.says)
			if asks := strings.Join(h.asks, ", "); asks != tt.asks {
				t.Errorf("asked for %s, want %s", asks, tt.asks)
			}
		})
	}
}

func TestAHoldIsShownAndRemoved(t *testing.T) {
	h := &holds{held: true}
	url := (&cloud{list: podList()}).start(t, Options{Holds: h}) + holdWeb1
	got := call(t, "GET", url)
	var state api.Hold
	if err := json.Unmarshal([]byte(got.body), &state); err != nil || got.code != http.StatusOK || state.Reason != "driving" || !state.Until.Equal(heldUntil) {
		t.Errorf("got %d %s, %v", got.code, got.body, err)
	}
	call(t, "DELETE", url).wants(t, http.StatusOK, "Hold of pod default/web-1 removed")
	h.err = errors.New("no space left")
	if got := call(t, "DELETE", url); got.code != http.StatusInternalServerError {
		t.Errorf("got %d %q", got.code, got.body)
	}
	h.held, h.err = false, nil
	for _, method := range []string{"GET", "DELETE"} {
		call(t, method, url).wants(t, http.StatusNotFound, "pod default/web-1 is not held: POST to this path with for=2h")
	}
	if got := call(t, "GET", (&cloud{list: podList()}).start(t, Options{})+holdWeb1); got.code != http.StatusNotFound {
		t.Errorf("without holds: got %d", got.code)
	}
}

func TestUpgradesOfAPodOnHold(t *testing.T) {
	tomorrow := time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339)
	for name, tt := range map[string]struct {
		query   string
		held    bool
		offline string
		code    int
		want    string
	}{
		"on hold, and the cloud is away":   {held: true, offline: sinceWhen, code: 409, want: "pod default/web-1 is on hold until"},
		"on hold, and it is for the night": {query: "?at=" + tomorrow, held: true, code: 202, want: "Upgrade of pod default/web-1 scheduled for " + tomorrow},
		"on hold":                          {held: true, code: 409, want: "pod default/web-1 is on hold until 2026-05-06T09:08:09Z (driving): wait, end the hold with DELETE …/hold, or go on in spite of it with force=true"},
		"in spite of the hold":             {query: "?force=true", held: true, code: 200, want: "Start updating pod default/web-1"},
		"force, and not on hold":           {query: "?force=true", code: 200, want: "Start updating pod default/web-1"},
		"no force, and not on hold":        {query: "?force=false", code: 200, want: "Start updating pod default/web-1"},
		"force is no such word":            {query: "?force=please", held: true, code: 400, want: `force: "please" is neither true nor false`},
	} {
		t.Run(name, func(t *testing.T) {
			c := &cloud{list: podList(upgradable()), delete: accept}
			o := Options{Holds: &holds{held: tt.held}, Queue: new(waiting), Offline: func() string { return tt.offline }}
			call(t, "POST", c.start(t, o)+upgradeWeb1+tt.query).wants(t, tt.code, tt.want)
			if _, deletes := c.asked(); len(deletes) > 0 != (tt.code == http.StatusOK) {
				t.Errorf("%d deletions", len(deletes))
			}
		})
	}
}

// slowDeletion is a cloud that takes a while to delete the pod, and shows it as deleted then.
type slowDeletion struct{ deleted chan struct{} }

func (c slowDeletion) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	if r.Method == http.MethodDelete {
		time.Sleep(time.Second)
		close(c.deleted)
		accept(w, r)
		return w.Result(), nil
	}
	pod := upgradable()
	select {
	case <-c.deleted:
		pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	default:
	}
	podList(pod)(w, r)
	return w.Result(), nil
}

// Otherwise, the answer would promise what is too late.
func TestAHoldThatComesDuringAnUpgradeIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods, err := NewPods(&rest.Config{Host: "http://cloud.invalid", Transport: slowDeletion{make(chan struct{})}})
		if err != nil {
			t.Fatal(err)
		}
		h := &holds{}
		api, err := New(Options{NodeName: "node-1", Pods: pods, Holds: h})
		if err != nil {
			t.Fatal(err)
		}
		post := func(path string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			api.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, http.NoBody))
			return w
		}
		upgraded := make(chan int, 1) // one answer; never closed
		go func() { upgraded <- post(upgradeWeb1).Code }()
		synctest.Wait() // until the deletion is sent
		if got := post(holdWeb1 + "?for=2h"); got.Code != http.StatusForbidden || len(h.asks) > 0 {
			t.Errorf("got %d %q after %q", got.Code, got.Body, h.asks)
		}
		if code := <-upgraded; code != http.StatusOK {
			t.Errorf("upgrade: got %d", code)
		}
	})
}
