package ota

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
)

const (
	sinceWhen  = "offline since 2026-05-06T07:08:09Z"
	queuedText = "Upgrade of pod default/web-1 queued: it starts when the cloud can be reached"
)

// waiting stands for package ota/queue, which has its own tests.
type waiting struct {
	added     []When
	states    []api.Upgrade
	err       error // of Add and Cancel
	cancelled int
	waits     bool // Cancel finds an upgrade
}

func (q *waiting) Add(pod *corev1.Pod, revision string, when When) (api.Upgrade, error) {
	if q.err != nil {
		return api.Upgrade{}, q.err
	}
	q.added = append(q.added, when)
	u := api.Upgrade{Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID), Revision: revision, State: api.WaitingForCloud}
	if when.Window != "" {
		u.Next = new(time.Date(2026, 11, 22, 2, 0, 0, 0, time.FixedZone("", 3600)))
	}
	if !when.At.IsZero() {
		u.Next = &when.At
	}
	return u, nil
}

func (q *waiting) State(types.NamespacedName) (api.Upgrade, bool) {
	if len(q.states) == 0 {
		return api.Upgrade{}, false
	}
	return q.states[0], true
}

func (q *waiting) States() []api.Upgrade { return append([]api.Upgrade{}, q.states...) }

func (q *waiting) Cancel(types.NamespacedName) (bool, error) {
	q.cancelled++
	return q.waits, q.err
}

func TestUpgradesThatBeginLater(t *testing.T) {
	inHub := refuse(apierrors.NewServiceUnavailable("edgehub: the cloud cannot be reached, and this cannot be done without it: connection refused"))
	delivered := refuse(apierrors.NewTimeoutError("edgehub: the connection to the cloud broke after the request was sent, so it may have been carried out", 0))
	pulling := condition(api.ImageCondition, corev1.ConditionFalse, api.Message("new"))
	at := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	for name, tt := range map[string]struct {
		queue   waiting
		off     bool        // --queue-upgrades=false
		pod     *corev1.Pod // nil: none
		offline bool
		missing string // the Node
		delete  http.HandlerFunc
		pulls   *queue // nil: the hub pulls no images
		query   string
		code    int
		says    string // the whole of it below 300
		added   int
		pulled  int
	}{
		"online it begins":                  {pod: upgradable(), delete: accept, code: 200, says: "Start updating pod default/web-1"},
		"offline it waits":                  {pod: upgradable(), offline: true, code: 202, says: queuedText, added: 1},
		"at a time":                         {pod: upgradable(), query: "at=" + at, code: 202, says: "Upgrade of pod default/web-1 scheduled for " + at, added: 1},
		"without a Node it waits":           {pod: upgradable(), missing: "the Node is gone", code: 202, says: "Upgrade of pod default/web-1 queued: the Node is gone", added: 1},
		"without a Node, and without queue": {off: true, pod: upgradable(), missing: "the Node is gone", code: 503, says: "pod default/web-1 was not upgraded: the Node is gone"},
		"at a time, offline":                {pod: upgradable(), offline: true, query: "at=" + at, code: 202, says: "Upgrade of pod default/web-1 scheduled for " + at, added: 1},
		"at a time that is now":             {pod: upgradable(), delete: accept, query: "at=" + time.Now().UTC().Format(time.RFC3339), code: 200, says: "Start updating pod default/web-1"},
		"in a window":                       {pod: upgradable(), query: "window=02:00-05:00&tz=Europe/Berlin", code: 202, says: "Upgrade of pod default/web-1 scheduled for 2026-11-22T02:00:00+01:00", added: 1},
		"offline the checks are the same":   {pod: upgradable(ownedBy()), offline: true, code: 400, says: "no controlling owner"},
		"at a time, too":                    {pod: upgradable(ownedBy()), query: "at=" + at, code: 400, says: "no controlling owner"},
		"offline a pod is not in the cache": {offline: true, code: 404, says: "there is no pod default/web-1 on this node, node-1 (" + sinceWhen},

		"its images are being pulled, offline":   {pod: upgradable(pulling), offline: true, code: 403, says: "are not on this node yet"},
		"its images are being pulled, at a time": {pod: upgradable(pulling), query: "at=" + at, code: 202, says: "Upgrade of pod default/web-1 scheduled for " + at, added: 1},
		"its images are pulled before the time":  {pod: pullable(), pulls: new(queue), query: "at=" + at, code: 202, says: "Upgrade of pod default/web-1 scheduled for " + at, added: 1, pulled: 1},
		"its images are pulled before the window, offline": {pod: pullable(), offline: true, pulls: new(queue), query: "window=02:00-05:00", code: 202,
			says: "Upgrade of pod default/web-1 scheduled for 2026-11-22T02:00:00+01:00", added: 1, pulled: 1},
		"its images were requested before": {pod: pullable(), pulls: &queue{states: []api.ImagePull{{UID: "uid-1", Revision: "new", State: api.Queued}}}, query: "at=" + at,
			code: 202, says: "Upgrade of pod default/web-1 scheduled for " + at, added: 1},
		"images of another revision were": {pod: pullable(), pulls: &queue{states: []api.ImagePull{{UID: "uid-1", Revision: "old", State: api.Ready}}}, query: "at=" + at,
			code: 202, says: "Upgrade of pod default/web-1 scheduled for " + at, added: 1, pulled: 1},
		"nobody knows its images":           {pod: upgradable(), pulls: new(queue), query: "at=" + at, code: 202, says: "Upgrade of pod default/web-1 scheduled for " + at, added: 1},
		"the disk is full for the pre-pull": {pod: pullable(), pulls: &queue{full: errors.New("disk full")}, query: "at=" + at, code: 500, says: "the pre-pull of its images could not be written down: disk full"},

		"the hub has not noticed yet that the cloud is away": {pod: upgradable(), delete: inHub, code: 202, says: queuedText, added: 1},
		"it is not known whether the deletion was executed":  {pod: upgradable(), delete: delivered, code: 503, says: "sending the request again is safe"},
		"the connection broke at the deletion":               {pod: upgradable(), delete: slam, code: 503, says: "sending the request again is safe"},
		"the cloud refuses":                                  {pod: upgradable(), delete: refuse(apierrors.NewForbidden(podResource, "web-1", errors.New("no"))), code: 500, says: "the cloud refused"},

		"the disk is full":      {queue: waiting{err: errors.New("disk full")}, pod: upgradable(), offline: true, code: 500, says: "was not queued, since it could not be written down: disk full"},
		"it has begun already":  {queue: waiting{err: ErrBegun}, pod: upgradable(), offline: true, code: 409, says: "is being upgraded already"},
		"as YurtHub, offline":   {off: true, pod: upgradable(), offline: true, delete: inHub, code: 503, says: sinceWhen + "; send the request again once the cloud is back"},
		"as YurtHub, at a time": {off: true, pod: upgradable(), query: "at=" + at, code: 501, says: "this hub was started with --queue-upgrades=false"},
		"as YurtHub, online":    {off: true, pod: upgradable(), delete: accept, code: 200, says: "Start updating pod default/web-1"},
	} {
		t.Run(name, func(t *testing.T) {
			list := podList()
			if tt.pod != nil {
				list = podList(tt.pod)
			}
			if tt.delete == nil {
				tt.delete = func(http.ResponseWriter, *http.Request) { t.Error("the pod was deleted") }
			}
			c, q := &cloud{list: list, delete: tt.delete}, tt.queue
			o := Options{Queue: &q, NoQueueing: tt.off, Offline: func() string { return map[bool]string{true: sinceWhen}[tt.offline] }, Unregistered: func() string { return tt.missing }}
			if tt.pulls != nil {
				o.ImagePulls = tt.pulls
			}
			got := call(t, "POST", c.start(t, o)+upgradeWeb1+"?"+tt.query)
			got.wants(t, tt.code, tt.says)
			if len(q.added) != tt.added {
				t.Errorf("%d were queued, want %d", len(q.added), tt.added)
			}
			if tt.pulls != nil && len(tt.pulls.requests) != tt.pulled {
				t.Errorf("pre-pulls %v were requested, want %d", tt.pulls.requests, tt.pulled)
			}
			if _, deletes := c.asked(); got.code == 200 && (len(deletes) != 1 || q.cancelled != 1) {
				t.Errorf("%d deletions, want one; what waited was withdrawn %d times, want once", len(deletes), q.cancelled)
			}
		})
	}
}

// The hub notices that the cloud is away while the deletion is on its way.
func TestTheCloudGoesAwayDuringARequest(t *testing.T) {
	q, calls := new(waiting), 0
	o := Options{Queue: q, Offline: func() string {
		if calls++; calls == 1 {
			return ""
		}
		return sinceWhen
	}}
	inHub := refuse(apierrors.NewServiceUnavailable("edgehub: the cloud cannot be reached: connection refused"))
	got := call(t, "POST", (&cloud{list: podList(upgradable()), delete: inHub}).start(t, o)+upgradeWeb1)
	if got.code != http.StatusAccepted || len(q.added) != 1 {
		t.Errorf("%d %q, want it queued", got.code, got.body)
	}
}

// offering stands for a bundle that offers revision new to all pods.
type offering struct{ Bundles }

func (offering) Offered(pod *corev1.Pod) *corev1.Pod {
	return api.WithTarget(pod, api.Target{Revision: "new", Containers: []api.TargetImage{{Name: "app", Image: "app:2"}}}, "OfferedByBundle", time.Now())
}

// The cloud returns after the pod was read without it. Another comes in place of a pod that is deleted, and the cloud decides of which revision.
func TestWhatABundleOffersIsNoReasonToDeleteAPod(t *testing.T) {
	current := upgradable(condition(api.NeedCondition, corev1.ConditionFalse, api.Message("old")))
	for name, tt := range map[string]struct {
		queue Queue
		code  int
		says  string
	}{
		"it waits for what the cloud says": {new(waiting), http.StatusAccepted, queuedText},
		"without a queue":                  {nil, http.StatusServiceUnavailable, "the cloud, which is back just now, may have one, too: send the request again"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &cloud{list: podList(current), delete: func(http.ResponseWriter, *http.Request) { t.Error("the pod was deleted") }}
			o := c.options(t, Options{Queue: tt.queue, Bundles: offering{}})
			call(t, "POST", serve(t, o)+upgradeWeb1).wants(t, tt.code, tt.says)
			a, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			err = a.Upgrade(t.Context(), Attempt{Pod: nameOf(current), UID: current.UID, Revision: "new", Begin: func() error { t.Error("it has begun"); return nil }})
			if err == nil || VerdictOf(err) != NotYet {
				t.Errorf("%v, verdict %d", err, VerdictOf(err))
			}
		})
	}
}

func TestParametersOfAnUpgrade(t *testing.T) {
	for query, says := range map[string]string{
		"when=now":                   `pod default/web-1 was not upgraded: "when" is no parameter: there are at, window, tz and force`,
		"force=yes":                  `force: "yes" is neither true nor false`,
		"at=tonight":                 `at: "tonight" is no time such as`,
		"at=":                        `at: "" is no time such as`,
		"at=2001-01-01T00:00:00Z":    "at: 2001-01-01T00:00:00Z is over: this node's clock shows",
		"window=2-5":                 `window or tz: "2-5" is no window such as`,
		"window=":                    `window or tz: "" is no window such as`,
		"tz=Europe/Berlin":           "tz is given without window",
		"window=02:00-05:00&tz=Mars": `window or tz: "Mars" is no time zone that this node knows`,
		"at=" + time.Now().UTC().Format(time.RFC3339) + "&window=02:00-05:00": "at and window are both given",
	} {
		t.Run(query, func(t *testing.T) {
			c := &cloud{list: podList(upgradable()), delete: func(http.ResponseWriter, *http.Request) { t.Error("the pod was deleted") }}
			q := new(waiting)
			call(t, "POST", c.start(t, Options{Queue: q})+upgradeWeb1+"?"+query).wants(t, http.StatusBadRequest, says)
			if len(q.added) != 0 {
				t.Errorf("queued: %v", q.added)
			}
		})
	}
	t.Run("what the queue gets", func(t *testing.T) {
		q := new(waiting)
		url := (&cloud{list: podList(upgradable())}).start(t, Options{Queue: q, Offline: func() string { return sinceWhen }})
		call(t, "POST", url+upgradeWeb1+"?window=22:00-05:00&tz=Asia/Tokyo&force=1")
		if len(q.added) != 1 || q.added[0] != (When{Window: "22:00-05:00", TimeZone: "Asia/Tokyo", Force: true}) {
			t.Errorf("got %+v", q.added)
		}
	})
}

func TestUpgradesAreShown(t *testing.T) {
	dropped := api.Upgrade{Namespace: "default", Pod: "web-1", State: api.Dropped, Message: "there is no pod default/web-1"}
	t.Run("none", func(t *testing.T) {
		o := unusedPods(t)
		o.Queue = new(waiting)
		url := serve(t, o)
		call(t, "GET", url+upgradeWeb1).wants(t, http.StatusNotFound, "no upgrade of pod default/web-1 waits")
		if got := call(t, "GET", url+api.Upgrades); got.code != http.StatusOK || !strings.Contains(got.body, `"items": []`) {
			t.Errorf("%d %s", got.code, got.body)
		}
	})
	t.Run("one", func(t *testing.T) {
		o := unusedPods(t)
		o.Queue, o.NoQueueing = &waiting{states: []api.Upgrade{dropped}}, true // they are visible all the same
		url := serve(t, o)
		var one api.Upgrade
		if got := call(t, "GET", url+upgradeWeb1); json.Unmarshal([]byte(got.body), &one) != nil || one != dropped {
			t.Errorf("%d %s", got.code, got.body)
		}
		var list api.UpgradeList
		if got := call(t, "GET", url+api.Upgrades); json.Unmarshal([]byte(got.body), &list) != nil || len(list.Items) != 1 || list.Items[0] != dropped {
			t.Errorf("%d %s", got.code, got.body)
		}
	})
}

func TestUpgradesAreCancelled(t *testing.T) {
	for name, tt := range map[string]struct {
		queue waiting
		off   bool
		code  int
		says  string
	}{
		"one that waits":             {waiting{waits: true}, false, 200, "Upgrade cancelled for pod default/web-1"},
		"one that waits, as YurtHub": {waiting{waits: true}, true, 200, "Upgrade cancelled for pod default/web-1"},
		"none":                       {waiting{}, false, 404, "no upgrade of pod default/web-1 waits"},
		"one that has ended":         {waiting{states: []api.Upgrade{{State: api.Done}}}, false, 404, "the last one has ended as Done"},
		"one that has begun":         {waiting{err: ErrBegun}, false, 409, "has begun, and cannot be cancelled"},
		"it cannot be written down":  {waiting{err: errors.New("disk full")}, false, 500, "is not cancelled, since that could not be written down: disk full"},
	} {
		t.Run(name, func(t *testing.T) {
			o := unusedPods(t)
			o.Queue, o.NoQueueing = &tt.queue, tt.off
			call(t, "DELETE", serve(t, o)+upgradeWeb1).wants(t, tt.code, tt.says)
		})
	}
}
