package ota

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
)

var (
	rollbackWeb1 = api.RollbackPath("default", "web-1")
	historyWeb1  = api.HistoryPath("default", "web-1")
)

// ran stands for package rollback, which has its own tests: of revisions v1 and v2 that the node has run.
type ran struct {
	full    error // why nothing can be written
	missing []string
	noted   []string // what was asked of it
	states  []api.Upgrade
}

func (r *ran) History(*corev1.Pod) api.History {
	return api.History{Items: []api.Revision{{Revision: "v3", Current: true}}}
}

func (r *ran) Previous(_ *corev1.Pod, revision string) (api.Target, bool) {
	switch revision {
	case "":
		revision = "v2"
	case "v1", "v2", "new":
	default:
		return api.Target{}, false
	}
	return api.Target{Revision: revision}, true
}

func (r *ran) Missing(api.Target) []string { return r.missing }

func (r *ran) Request(_ *corev1.Pod, t api.Target) error {
	r.noted = append(r.noted, "request "+t.Revision)
	return r.full
}

func (r *ran) Withdraw(pod types.NamespacedName) error {
	r.noted = append(r.noted, "withdraw "+pod.String())
	return r.full
}

func (r *ran) State(pod types.NamespacedName) (api.Upgrade, bool) { return stateOf(r.states, pod) }
func (r *ran) States() []api.Upgrade                              { return r.states }

func stateOf(states []api.Upgrade, pod types.NamespacedName) (api.Upgrade, bool) {
	for _, u := range states {
		if u.Namespace == pod.Namespace && u.Pod == pod.Name {
			return u, true
		}
	}
	return api.Upgrade{}, false
}

// Its deletion may have been sent, so the pod would come back as the new revision.
func TestNoRollbackOfAPodWhoseUpgradeHasBegun(t *testing.T) {
	r, q := &ran{}, &waiting{states: []api.Upgrade{{UID: "uid-1", State: api.InProgress}}}
	call(t, http.MethodPost, (&cloud{list: at()}).start(t, Options{Rollbacks: r, Queue: q})+rollbackWeb1).wants(t, http.StatusConflict, "is being upgraded")
	if len(r.noted)+q.cancelled > 0 {
		t.Errorf("done: %q, %d cancelled", r.noted, q.cancelled)
	}
}

// at returns a pod of revision v3 whose owner may go back.
func at(change ...func(*corev1.Pod)) http.HandlerFunc {
	return podList(pullable(append([]func(*corev1.Pod){func(p *corev1.Pod) {
		p.Labels = map[string]string{appsv1.ControllerRevisionHashLabelKey: "v3"}
	}, allowed(api.Policy{Rollback: true, History: 1})}, change...)...))
}

func allowed(p api.Policy) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Annotations[api.PolicyAnnotation] = p.Encode() }
}

// told has the controller say which revisions the cluster has.
func told(revisions map[string]string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Annotations[api.PolicyAnnotation] = api.Policy{Rollback: true, History: 1}.EncodeWith(revisions)
	}
}

// The outcome is the answer, where it comes in time.
func TestARollbackAnswersWhatTheControllerDoes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		state api.Upgrade
		code  int
		says  string
	}{
		"it is done":      {api.Upgrade{State: api.Done}, 202, "Rollback of pod default/web-1 to revision v2 requested"},
		"it is refused":   {api.Upgrade{State: api.Dropped, Message: "not only images would change"}, 409, "pod default/web-1 was not rolled back to revision v2: not only images would change"},
		"it is no more":   {api.Upgrade{UID: "another", State: api.Dropped}, 202, "Rollback of pod default/web-1 to revision v2 requested"},
		"no answer comes": {api.Upgrade{State: api.InProgress}, 202, "Rollback of pod default/web-1 to revision v2 requested"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := tt.state
			u.Namespace, u.Pod, u.UID, u.Revision = "default", "web-1", cmp.Or(u.UID, "uid-1"), "v2"
			call(t, http.MethodPost, (&cloud{list: at()}).start(t, Options{Rollbacks: &ran{states: []api.Upgrade{u}}})+rollbackWeb1).wants(t, tt.code, tt.says)
		})
	}
}

func TestRollbackAnswers(t *testing.T) {
	deleting := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} }
	orphan := func(p *corev1.Pod) { p.OwnerReferences = nil }
	forged := func(p *corev1.Pod) { p.Annotations[api.PolicyAnnotation] = "{" }
	const away = "offline since noon"
	tests := map[string]struct {
		list    http.HandlerFunc
		query   string
		offline string
		ran     ran
		code    int
		says    string // whole if code is 202, else a part
		noted   string
	}{
		"online it is requested": {at(), "", "", ran{}, 202, "Rollback of pod default/web-1 to revision v2 requested", "request v2"},
		"of a revision":          {at(), "?revision=v1", "", ran{}, 202, "Rollback of pod default/web-1 to revision v1 requested", "request v1"},
		"of a StatefulSet":       {at(ofStatefulSet), "", "", ran{}, 202, "Rollback of pod default/web-1 to revision v2 requested", "request v2"},
		"offline it waits": {
			at(), "", away, ran{}, 202, "Rollback of pod default/web-1 queued: it starts when the cloud can be reached", "request v2",
		},
		"no such pod":                          {podList(), "", away, ran{}, 404, "there is no pod default/web-1 on this node", ""},
		"a pod that is being deleted":          {at(deleting), "", "", ran{}, 403, "being deleted", ""},
		"a pod without an owner":               {at(orphan), "", "", ran{}, 400, "no controlling owner", ""},
		"the admin does not permit it":         {at(allowed(api.Policy{})), "", "", ran{}, 403, "apps.openyurt.io/owner-rollback: Allowed", ""},
		"the policy cannot be read":            {at(forged), "", "", ran{}, 403, "not known whether", ""},
		"a revision that was never here":       {at(), "?revision=v0", "", ran{}, 409, "has not run it", ""},
		"the target of the upgrade":            {at(), "?revision=new", "", ran{}, 409, "POST …/upgrade", ""},
		"a revision that the cluster has":      {at(told(map[string]string{"v2": ""})), "", "", ran{}, 202, "Rollback of pod default/web-1 to revision v2 requested", "request v2"},
		"one that it has no more":              {at(told(map[string]string{})), "", "", ran{}, 409, "cannot go back to revision v2: the cluster does not have that revision any more (revisionHistoryLimit)", ""},
		"one that differs by more than images": {at(told(map[string]string{"v2": "spec.volumes differs"})), "", away, ran{}, 409, "cannot go back to revision v2: spec.volumes differs", ""},
		"images that are gone":                 {at(), "", "", ran{missing: []string{"app:2", "side:1"}}, 409, "app:2, side:1", ""},
		"it cannot be written":                 {at(), "", "", ran{full: errors.New("disk full")}, 500, "disk full", "request v2"},
		"a parameter that does not exist":      {at(), "?revisoin=v1", "", ran{}, 400, "revisoin", ""},
		"a pod on hold":                        {at(), "", "", ran{}, 409, "on hold until", ""},
		"in spite of a hold":                   {at(), "?force=true", "", ran{}, 202, "Rollback of pod default/web-1 to revision v2 requested", "request v2"},
		"force that is neither true nor false": {at(), "?force=maybe", "", ran{}, 400, "maybe", ""},
		"an empty revision":                    {at(), "?revision=", "", ran{}, 400, "GET …/history", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			c, q := &cloud{list: tt.list}, new(waiting)
			url := c.start(t, Options{
				Queue: q, Rollbacks: &tt.ran, Holds: &holds{held: strings.Contains(name, "hold")}, Registerer: registry,
				Offline: func() string { return tt.offline },
			})
			got := call(t, http.MethodPost, url+rollbackWeb1+tt.query)
			got.wants(t, tt.code, tt.says)
			if noted := strings.Join(tt.ran.noted, ", "); noted != tt.noted {
				t.Errorf("done: %s; want %s", noted, tt.noted)
			}
			if accepted := got.code < 300; accepted != (q.cancelled == 1) {
				t.Errorf("code %d, and the upgrade that waits was withdrawn %d times", got.code, q.cancelled)
			}
			if n, err := testutil.GatherAndCount(registry, "edgehub_ota_rollbacks_total"); err != nil || n != 1 {
				t.Errorf("counted %d codes, %v", n, err)
			}
		})
	}
}

func TestHistory(t *testing.T) {
	c := &cloud{list: at()}
	got := call(t, http.MethodGet, c.start(t, Options{Rollbacks: &ran{}})+historyWeb1)
	var list api.History
	if err := json.Unmarshal([]byte(got.body), &list); err != nil || got.code != 200 || len(list.Items) != 1 || !list.Items[0].Current {
		t.Errorf("got %d %q", got.code, got.body)
	}
	c = &cloud{list: podList()}
	if got := call(t, http.MethodGet, c.start(t, Options{Rollbacks: &ran{}, Offline: func() string { return "offline" }})+historyWeb1); got.code != 404 {
		t.Errorf("of no pod: got %d %q", got.code, got.body)
	}
	if got := call(t, http.MethodGet, c.start(t, Options{})+historyWeb1); got.code != 404 || !strings.Contains(got.body, "no such path") {
		t.Errorf("without rollbacks: got %d %q", got.code, got.body)
	}
}

// An upgrade that is refused leaves the wish as it is.
func TestAnUpgradeEndsARollback(t *testing.T) {
	for name, tt := range map[string]struct {
		delete http.HandlerFunc
		full   error
		code   int
		noted  string
	}{
		"it has begun":              {accept, nil, 200, "withdraw default/web-1"},
		"it was refused":            {away, nil, 503, ""},
		"its end cannot be written": {accept, errors.New("disk full"), 200, "withdraw default/web-1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &ran{full: tt.full}
			got := call(t, http.MethodPost, (&cloud{list: at(), delete: tt.delete}).start(t, Options{Rollbacks: r})+upgradeWeb1)
			if noted := strings.Join(r.noted, ", "); got.code != tt.code || noted != tt.noted {
				t.Errorf("got %d %q, done: %s", got.code, got.body, noted)
			}
		})
	}
}

// A rollback that was carried out stays until the pod is upgraded, which may be in the night.
func TestAnUpgradeThatWaitsEndsARollbackThatDoes(t *testing.T) {
	for state, want := range map[api.UpgradeState]string{
		api.WaitingForCloud: "withdraw default/web-1", api.InProgress: "withdraw default/web-1", api.Done: "", api.Dropped: "", "": "",
	} {
		for _, query := range []string{"", "?window=02:00-05:00"} {
			r := &ran{}
			if state != "" {
				r.states = []api.Upgrade{{Namespace: "default", Pod: "web-1", Action: api.RollbackAction, State: state}}
			}
			o := Options{Rollbacks: r, Queue: new(waiting), Offline: func() string { return sinceWhen }}
			got := call(t, http.MethodPost, (&cloud{list: at()}).start(t, o)+upgradeWeb1+query)
			if noted := strings.Join(r.noted, ", "); got.code != http.StatusAccepted || noted != want {
				t.Errorf("%s, %q: got %d %q, done: %q, want %q", state, query, got.code, got.body, noted, want)
			}
			if r.full = errors.New("disk full"); want == "" {
				continue
			}
			got = call(t, http.MethodPost, (&cloud{list: at()}).start(t, o)+upgradeWeb1+query)
			if got.code != http.StatusInternalServerError {
				t.Errorf("%s, and the disk is full: got %d %q", state, got.code, got.body)
			}
			checkErrorBody(t, got, "so that it may be rolled back before: disk full")
		}
	}
}

func TestRollbacksAreShownWithUpgrades(t *testing.T) {
	one := func(pod string, action api.Action, state api.UpgradeState, second int64) api.Upgrade {
		return api.Upgrade{Namespace: "default", Pod: pod, Action: action, State: state, Requested: time.Unix(second, 0).UTC()}
	}
	const up, back = api.UpgradeAction, api.RollbackAction
	type list = []api.Upgrade
	for name, tt := range map[string]struct {
		queued, rollbacks list
		want              string // of web-1, and after a colon of all
	}{
		"a rollback":                             {nil, list{one("web-1", back, api.InProgress, 1)}, "Rollback InProgress: InProgress"},
		"of another pod":                         {nil, list{one("web-2", back, api.InProgress, 1)}, "404: InProgress"},
		"a newer rollback than the upgrade":      {list{one("web-1", up, api.Done, 1)}, list{one("web-1", back, api.Done, 2)}, "Rollback Done: Done Done"},
		"a newer upgrade than the rollback":      {list{one("web-1", up, api.Dropped, 2)}, list{one("web-1", back, api.Done, 1)}, "Upgrade Dropped: Done Dropped"},
		"the rollback has not ended":             {list{one("web-1", up, api.Withdrawn, 2)}, list{one("web-1", back, api.InProgress, 1)}, "Rollback InProgress: InProgress Withdrawn"},
		"the upgrade waits, by a clock set back": {list{one("web-1", up, api.Scheduled, 1)}, list{one("web-1", back, api.Done, 2)}, "Upgrade Scheduled: Scheduled Done"},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{Rollbacks: &ran{states: tt.rollbacks}}
			if tt.queued != nil {
				o.Queue = &waiting{states: tt.queued}
			}
			url := (&cloud{list: podList()}).start(t, o)
			got := call(t, http.MethodGet, url+upgradeWeb1)
			shown := strconv.Itoa(got.code)
			var u api.Upgrade
			if json.Unmarshal([]byte(got.body), &u) == nil {
				shown = string(u.Action) + " " + string(u.State)
			}
			shown += ":"
			var all api.UpgradeList
			if err := json.Unmarshal([]byte(call(t, http.MethodGet, url+api.Upgrades).body), &all); err != nil {
				t.Fatal(err)
			}
			for _, u := range all.Items {
				shown += " " + string(u.State)
			}
			if shown != tt.want {
				t.Errorf("got %s, want %s", shown, tt.want)
			}
		})
	}
}

func TestOnlyARollbackThatWaitsCanBeCancelled(t *testing.T) {
	for state, want := range map[api.UpgradeState]int{api.WaitingForCloud: 200, api.InProgress: 409, api.Done: 404} {
		r := &ran{states: []api.Upgrade{{Namespace: "default", Pod: "web-1", Action: api.RollbackAction, State: state}}}
		got := call(t, http.MethodDelete, (&cloud{list: podList()}).start(t, Options{Rollbacks: r, Queue: new(waiting)})+upgradeWeb1)
		if got.code != want || (want == 200) != (len(r.noted) == 1) {
			t.Errorf("%s: got %d %q after %q, want %d", state, got.code, got.body, r.noted, want)
		}
	}
}
