package ota

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
)

// placing stands for package inplace, which has its own tests.
type placing struct {
	err       error // of Begin and GoBack
	runs      string
	probation bool
	nowhere   bool  // the node cannot go back
	no        error // of Check
	begun     []string
	states    []api.Upgrade
}

func (p *placing) Begin(_ context.Context, pod *corev1.Pod, t api.Target, first func() error) error {
	if p.err == nil {
		if err := first(); err != nil {
			return err
		}
	}
	p.begun = append(p.begun, "upgrade "+pod.Name+" to "+t.Revision)
	return p.err
}

func (p *placing) Check(*corev1.Pod, api.Target) error { return p.no }

func (p *placing) Describe(pod *corev1.Pod) {
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: api.UpgradedOfflineCondition, Message: string(pod.UID)})
}

func (p *placing) GoBack(pod types.UID) (bool, error) {
	p.begun = append(p.begun, "back "+string(pod))
	return !p.nowhere, p.err
}

func (p *placing) Runs(types.UID) (string, bool) { return p.runs, !p.probation }

func (p *placing) Effective(pods []*corev1.Pod) []*corev1.Pod {
	pod := pods[0].DeepCopy()
	if pod.Name += "-as-it-runs"; p.runs == "" {
		return pods
	}
	return []*corev1.Pod{pod}
}

func (p *placing) State(types.NamespacedName) (api.Upgrade, bool) {
	if len(p.states) == 0 {
		return api.Upgrade{}, false
	}
	return p.states[0], true
}

func (p *placing) States() []api.Upgrade { return p.states }

// marked has the controller say that the pod can be upgraded in place, or why not.
func marked(why string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		t := api.Target{Revision: "new", Containers: []api.TargetImage{{Name: "app", Image: "app:2"}}, NotInPlace: why}
		if why == "" {
			t.InPlace = []api.ImageChange{{Name: "app", From: "app:1", To: "app:2"}}
		}
		p.Annotations[api.TargetAnnotation] = t.Encode()
	}
}

func TestUpgradesInPlace(t *testing.T) {
	const text = "Start updating pod default/web-1 (offline, in place)"
	began := []string{"upgrade web-1 to new"}
	for name, tt := range map[string]struct {
		inPlace placing
		pod     *corev1.Pod
		online  bool
		off     bool // --queue-upgrades=false
		query   string
		code    int
		says    string
		begun   []string
		queued  int
	}{
		"it begins":                    {pod: pullable(marked("")), code: 200, says: text, begun: began},
		"it is on probation: the same": {inPlace: placing{runs: "new", probation: true}, pod: pullable(marked("")), code: 200, says: text, begun: began},
		"without a queue":              {pod: pullable(marked("")), off: true, code: 200, says: text, begun: began},
		"it runs already":              {inPlace: placing{runs: "new"}, pod: pullable(marked("")), code: 403, says: "was upgraded in place to revision new, and the cloud follows when it is back"},
		"it runs already, and the cloud is back and has not followed yet": {inPlace: placing{runs: "new"}, pod: pullable(marked("")), online: true, code: 403, says: "was upgraded in place to revision new"},
		"it runs already, and the cloud refuses it": {
			inPlace: placing{runs: "new"}, pod: pullable(marked(""), condition(api.ReconciledCondition, corev1.ConditionFalse, "app:2 is not admitted")), online: true,
			code: 403, says: "was upgraded in place to revision new, and the cloud cannot follow: app:2 is not admitted; the admin can mend that",
		},
		"it is on probation, and the cloud is back":       {inPlace: placing{runs: "new", probation: true}, pod: pullable(marked("")), online: true, code: 409, says: "wait until it is known whether the new version works"},
		"it runs another revision, and the cloud is back": {inPlace: placing{runs: "other"}, pod: pullable(marked("")), online: true, code: 200, says: "Start updating pod default/web-1"},
		"images are missing": {
			inPlace: placing{err: &NotInPlaceError{Why: "images", Missing: []string{"app:1", "app:2"}}}, pod: pullable(marked("")),
			code: 409, says: "these are not: app:1, app:2; POST …/imagepull", begun: began,
		},
		"the controller says why not": {inPlace: placing{err: &NotInPlaceError{Why: "a volume differs"}}, pod: pullable(marked("a volume differs")), code: 202, says: queuedText + "; it cannot be done in place: a volume differs", begun: began, queued: 1},
		"so it does, without a queue": {inPlace: placing{err: &NotInPlaceError{Why: "a volume differs"}}, pod: pullable(marked("a volume differs")), off: true, code: 503, says: "it cannot be done in place: a volume differs; send the request again once the cloud is back", begun: began},
		"the workload does not ask":   {pod: pullable(), code: 202, says: queuedText + "\n", queued: 1},
		"the disk is full":            {inPlace: placing{err: io.ErrShortWrite}, pod: pullable(marked("")), code: 500, says: "could not be written down: short write", begun: began},
		"later":                       {pod: pullable(marked("")), query: "?window=02:00-05:00", code: 202, says: "scheduled for", queued: 1},
		"the images are being pulled": {pod: pullable(marked(""), condition(api.ImageCondition, corev1.ConditionFalse, api.Message("new"))), code: 403, says: "are not on this node yet"},
		"online":                      {pod: pullable(marked("")), online: true, code: 200, says: "Start updating pod default/web-1\n"},
	} {
		t.Run(name, func(t *testing.T) {
			c, queue := &cloud{list: podList(tt.pod), delete: accept}, &waiting{}
			o := Options{InPlace: &tt.inPlace, Queue: queue, NoQueueing: tt.off, Offline: func() string {
				if tt.online {
					return ""
				}
				return sinceWhen
			}}
			got := call(t, http.MethodPost, c.start(t, o)+upgradeWeb1+tt.query)
			if got.code != tt.code || !strings.Contains(got.body, tt.says) {
				t.Errorf("%d %s, want %d %q", got.code, got.body, tt.code, tt.says)
			}
			if !slices.Equal(tt.inPlace.begun, tt.begun) || len(queue.added) != tt.queued {
				t.Errorf("begun %q, queued %d", tt.inPlace.begun, len(queue.added))
			}
			if _, deletes := c.asked(); len(deletes) > 0 && !tt.online {
				t.Error("the pod was deleted")
			}
			if wantsEnd := got.code == 200 && !tt.online; (queue.cancelled > 0) != wantsEnd && !tt.online {
				t.Errorf("a queued upgrade was withdrawn %d times", queue.cancelled)
			}
		})
	}
}

// The pod that its owner upgrades stays: a wish for an earlier revision would come true once the cloud has followed.
func TestARollbackIsWithdrawnBeforeAnUpgradeInPlaceBegins(t *testing.T) {
	for name, tt := range map[string]struct {
		full   error
		no     error
		code   int
		begun  int
		wished string
	}{
		"it begins":             {nil, nil, 200, 1, "withdraw default/web-1"},
		"the disk is full":      {io.ErrShortWrite, nil, 500, 0, "withdraw default/web-1"},
		"it cannot be in place": {nil, &NotInPlaceError{Why: "images", Missing: []string{"app:2"}}, 409, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			own, r := &placing{err: tt.no}, &ran{full: tt.full}
			url := (&cloud{list: podList(pullable(marked("")))}).start(t, Options{InPlace: own, Rollbacks: r, Offline: func() string { return sinceWhen }})
			if got := call(t, http.MethodPost, url+upgradeWeb1); got.code != tt.code || len(own.begun) != tt.begun || strings.Join(r.noted, ", ") != tt.wished {
				t.Errorf("%d %s, begun %q, wishes: %q", got.code, got.body, own.begun, r.noted)
			}
		})
	}
}

func TestAnUpgradeInPlaceIsNotCancelledButUndone(t *testing.T) {
	for state, says := range map[api.InPlaceState]string{api.InProbation: "POST …/rollback has the earlier version return", api.Passed: "the last one has ended as Done"} {
		own := api.Upgrade{Namespace: "default", Pod: "web-1", State: api.InProgress, InPlace: &api.InPlace{State: state}}
		code := http.StatusConflict
		if state == api.Passed {
			own.State, code = api.Done, http.StatusNotFound
		}
		url := (&cloud{}).start(t, Options{InPlace: &placing{states: []api.Upgrade{own}}, Queue: &waiting{}})
		call(t, http.MethodDelete, url+upgradeWeb1).wants(t, code, says)
	}
}

func TestRollbacksOfUpgradesInPlace(t *testing.T) {
	for name, tt := range map[string]struct {
		inPlace placing
		change  func(*corev1.Pod)
		query   string
		code    int
		says    string
		back    bool
		wish    string
	}{
		"it goes back by itself":             {placing{runs: "new"}, nil, "", 200, "Start rolling back pod default/web-1 (in place)", true, ""},
		"to the revision that the cloud has": {placing{runs: "new", probation: true}, nil, "?revision=v3", 200, "Start rolling back pod default/web-1 (in place)", true, ""},
		"to an earlier one":                  {placing{runs: "new"}, nil, "?revision=v1", 202, "Rollback of pod default/web-1-as-it-runs queued: it starts when the cloud can be reached", false, "request v1"},
		"the cloud may have followed":        {placing{runs: "new", nowhere: true}, nil, "", 202, "Rollback of pod default/web-1-as-it-runs queued: it starts when the cloud can be reached", true, "request v2"},
		"nothing was upgraded in place":      {placing{}, nil, "", 202, "Rollback of pod default/web-1 queued: it starts when the cloud can be reached", false, "request v2"},
		"the disk is full":                   {placing{runs: "new", err: errors.New("disk full")}, nil, "", 500, "could not be written down: disk full", true, ""},
		"the admin does not permit it":       {placing{runs: "new"}, allowed(api.Policy{}), "", 403, "may not be rolled back", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, change := &ran{}, tt.change
			if change == nil {
				change = func(*corev1.Pod) {}
			}
			o := Options{InPlace: &tt.inPlace, Rollbacks: r, Offline: func() string { return sinceWhen }}
			call(t, http.MethodPost, (&cloud{list: at(change)}).start(t, o)+rollbackWeb1+tt.query).wants(t, tt.code, tt.says)
			if (len(tt.inPlace.begun) > 0) != tt.back || strings.Join(r.noted, ", ") != tt.wish {
				t.Errorf("begun %q, wished %q", tt.inPlace.begun, r.noted)
			}
		})
	}
}

func TestUpgradesInPlaceAreShown(t *testing.T) {
	early, late := time.Unix(100, 0).UTC(), time.Unix(200, 0).UTC()
	for name, tt := range map[string]struct {
		queued api.Upgrade
		want   string
	}{
		"newer than what has ended": {api.Upgrade{State: api.Done, Requested: early, Message: "queued"}, "in place"},
		"older than what has ended": {api.Upgrade{State: api.Done, Requested: late.Add(time.Second), Message: "queued"}, "queued"},
		"newer than what waits":     {api.Upgrade{State: api.WaitingForCloud, Requested: early, Message: "queued"}, "queued"},
	} {
		t.Run(name, func(t *testing.T) {
			own := &placing{states: []api.Upgrade{{Namespace: "default", Pod: "web-1", State: api.InProgress, Requested: late, Message: "in place"}}}
			url := (&cloud{}).start(t, Options{InPlace: own, Queue: &waiting{states: []api.Upgrade{tt.queued}}})
			if got := call(t, http.MethodGet, url+upgradeWeb1); !strings.Contains(got.body, `"message": "`+tt.want+`"`) {
				t.Errorf("%d %s", got.code, got.body)
			}
			if got := call(t, http.MethodGet, url+api.Upgrades); strings.Count(got.body, `"message"`) != 2 {
				t.Errorf("%d %s", got.code, got.body)
			}
		})
	}

	own := &placing{states: []api.Upgrade{{Namespace: "default", Pod: "web-1", UID: "uid-1", InPlace: &api.InPlace{State: api.Undone}}}}
	o := Options{InPlace: own, Rollbacks: &ran{}}
	url := (&cloud{list: podList(pullable())}).start(t, o)
	for path, want := range map[string]string{api.Pods: `{"type":"PodUpgradedOffline","status":"","lastProbeTime":null,"lastTransitionTime":null,"message":"uid-1"}`, historyWeb1: `"state": "Undone"`} {
		if got := call(t, http.MethodGet, url+path); got.code != http.StatusOK || strings.Count(got.body, want) != 1 {
			t.Errorf("GET %s: %d %s", path, got.code, got.body)
		}
	}
	own.states[0].UID = "of another pod"
	if got := call(t, http.MethodGet, url+historyWeb1); strings.Contains(got.body, "upgrade") {
		t.Errorf("another pod's: %s", got.body)
	}
}

func TestWhatTakesEffectAtOnceWithoutTheCloud(t *testing.T) {
	for name, tt := range map[string]struct {
		inPlace InPlace
		pod     *corev1.Pod
		want    bool
	}{
		"it is possible":            {&placing{}, pullable(marked("")), true},
		"it was tried":              {&placing{no: &NotInPlaceError{Why: "tried"}}, pullable(marked("")), false},
		"the workload does not ask": {&placing{}, pullable(), false},
		"upgrades in place are off": {nil, pullable(marked("")), false},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := New((&cloud{}).options(t, Options{InPlace: tt.inPlace}))
			if err != nil {
				t.Fatal(err)
			}
			if got := a.InPlace(tt.pod); got != tt.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

// An upgrade that has waited since before one in place.
func TestAQueuedUpgradeToWhatRunsInPlaceIsVoid(t *testing.T) {
	for name, tt := range map[string]struct {
		inPlace placing
		want    Verdict
	}{
		"it runs":            {placing{runs: "new"}, Void},
		"it is on probation": {placing{runs: "new", probation: true}, NotYet},
	} {
		t.Run(name, func(t *testing.T) {
			c := &cloud{list: podList(pullable(marked("")))}
			a, err := New(c.options(t, Options{InPlace: &tt.inPlace}))
			if err != nil {
				t.Fatal(err)
			}
			err = a.Upgrade(t.Context(), Attempt{
				Pod: types.NamespacedName{Namespace: "default", Name: "web-1"}, UID: "uid-1", Revision: "new",
				Begin: func() error { t.Error("it has begun"); return nil },
			})
			if err == nil || VerdictOf(err) != tt.want {
				t.Errorf("%v, %v", VerdictOf(err), err)
			}
		})
	}
}
