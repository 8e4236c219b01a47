package ota

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/nodeapi"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

var (
	rollbackWeb1 = nodeapi.RollbackPath("default", "web-1")
	historyWeb1  = nodeapi.HistoryPath("default", "web-1")
)

// ran stands for package rollback, which has its own tests: of revisions v1 and v2 that the node has run.
type ran struct {
	full    error // why nothing can be written
	missing []string
	noted   []string // what was asked of it
	states  []nodeapi.Upgrade
}

func (r *ran) History(*corev1.Pod) nodeapi.History {
	return nodeapi.History{Items: []nodeapi.Revision{{Revision: "v3", Current: true}}}
}

func (r *ran) Previous(_ *corev1.Pod, revision string) (upgrade.Target, bool) {
	switch revision {
	case "":
		revision = "v2"
	case "v1", "v2", "new":
	default:
		return upgrade.Target{}, false
	}
	return upgrade.Target{Revision: revision}, true
}

func (r *ran) Missing(upgrade.Target) []string { return r.missing }

func (r *ran) Request(_ *corev1.Pod, t upgrade.Target) error {
	r.noted = append(r.noted, "request "+t.Revision)
	return r.full
}

func (r *ran) Withdraw(pod types.NamespacedName) error {
	r.noted = append(r.noted, "withdraw "+pod.String())
	return r.full
}

func (r *ran) State(pod types.NamespacedName) (nodeapi.Upgrade, bool) { return stateOf(r.states, pod) }
func (r *ran) States() []nodeapi.Upgrade                              { return r.states }

func stateOf(states []nodeapi.Upgrade, pod types.NamespacedName) (nodeapi.Upgrade, bool) {
	for _, u := range states {
		if u.Namespace == pod.Namespace && u.Pod == pod.Name {
			return u, true
		}
	}
	return nodeapi.Upgrade{}, false
}

// at returns a pod of revision v3 whose owner may go back.
func at(change ...func(*corev1.Pod)) http.HandlerFunc {
	return podList(pullable(append([]func(*corev1.Pod){func(p *corev1.Pod) {
		p.Labels = map[string]string{appsv1.ControllerRevisionHashLabelKey: "v3"}
	}, allowed(upgrade.Policy{Rollback: true, History: 1})}, change...)...))
}

func allowed(p upgrade.Policy) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Annotations[upgrade.PolicyAnnotation] = p.Encode() }
}

func TestRollbackAnswers(t *testing.T) {
	deleting := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} }
	orphan := func(p *corev1.Pod) { p.OwnerReferences = nil }
	forged := func(p *corev1.Pod) { p.Annotations[upgrade.PolicyAnnotation] = "{" }
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
		"offline it waits": {
			at(), "", away, ran{}, 202, "Rollback of pod default/web-1 queued: it starts when the cloud can be reached", "request v2",
		},
		"no such pod":                          {podList(), "", away, ran{}, 404, "knows of no pod default/web-1", ""},
		"a pod that is being deleted":          {at(deleting), "", "", ran{}, 403, "being deleted", ""},
		"a pod without an owner":               {at(orphan), "", "", ran{}, 400, "no controlling owner", ""},
		"the admin does not permit it":         {at(allowed(upgrade.Policy{})), "", "", ran{}, 403, "apps.openyurt.io/owner-rollback: Allowed", ""},
		"the policy cannot be read":            {at(forged), "", "", ran{}, 403, "not known whether", ""},
		"a revision that was never here":       {at(), "?revision=v0", "", ran{}, 409, "has not run it", ""},
		"the target of the upgrade":            {at(), "?revision=new", "", ran{}, 409, "POST …/upgrade", ""},
		"images that are gone":                 {at(), "", "", ran{missing: []string{"app:2", "side:1"}}, 409, "app:2, side:1", ""},
		"it cannot be written":                 {at(), "", "", ran{full: errors.New("disk full")}, 500, "disk full", "request v2"},
		"a parameter that does not exist":      {at(), "?revisoin=v1", "", ran{}, 400, "revisoin", ""},
		"a pod on hold":                        {at(), "", "", ran{}, 409, "on hold until", ""},
		"in spite of a hold":                   {at(), "?force=true", "", ran{}, 202, "Rollback of pod default/web-1 to revision v2 requested", "request v2"},
		"force that is neither true nor false": {at(), "?force=maybe", "", ran{}, 400, "maybe", ""},
		"a parameter that is given twice":      {at(), "?revision=v1&revision=v2", "", ran{}, 400, "2 times", ""},
		"an empty revision":                    {at(), "?revision=", "", ran{}, 400, "GET …/history", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			c := &cloud{list: tt.list}
			url := c.start(t, Options{
				Rollbacks: &tt.ran, Holds: &holds{held: strings.Contains(name, "hold")}, Registerer: registry,
				Offline: func() string { return tt.offline },
			})
			got := call(t, http.MethodPost, url+rollbackWeb1+tt.query)
			if got.code != tt.code || (tt.code < 300 && got.body != tt.says) || !strings.Contains(got.body, tt.says) || strings.Count(got.body, "\n") > 1 {
				t.Errorf("got %d %q, want %d %q", got.code, got.body, tt.code, tt.says)
			}
			if noted := strings.Join(tt.ran.noted, ", "); noted != tt.noted {
				t.Errorf("done: %s; want %s", noted, tt.noted)
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
	var list nodeapi.History
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
