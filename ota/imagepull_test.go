package ota

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
)

var pullWeb1 = api.ImagePullPath("default", "web-1")

// queue stands for package imagepull, which has its own tests.
type queue struct {
	full     error // why nothing can be kept
	requests []string
	states   []api.ImagePull // of web-1, one after the other
}

func (q *queue) Request(pod *corev1.Pod, t api.Target, imported bool) error {
	if q.full == nil {
		request := pod.Namespace + "/" + pod.Name + " " + t.Revision
		if imported {
			request += " imported"
		}
		q.requests = append(q.requests, request)
	}
	return q.full
}

func (q *queue) State(pod types.NamespacedName) (api.ImagePull, bool) {
	if pod.Name != "web-1" || len(q.states) == 0 {
		return api.ImagePull{}, false
	}
	return q.states[0], true
}

func (q *queue) States() []api.ImagePull { return q.states }

func (q *queue) Follow(_ context.Context, _ types.NamespacedName, _ time.Duration, each func(api.ImagePull) bool) {
	for _, s := range q.states {
		if !each(s) {
			return
		}
	}
}

func (q *queue) Cancel(pod types.NamespacedName) (bool, error) {
	_, was := q.State(pod)
	return was, q.full
}

func (q *queue) Conditions(pod *corev1.Pod) []corev1.PodCondition {
	s, ok := q.State(nameOf(pod))
	if !ok || s.UID != string(pod.UID) {
		return nil
	}
	c := corev1.PodCondition{Type: api.ImageCondition, Status: corev1.ConditionFalse, Reason: api.ReasonPulling, Message: api.Message(s.Revision)}
	switch s.State {
	case api.Ready:
		c.Status = corev1.ConditionTrue
	case api.Cancelled:
		c.Status = ""
	}
	return []corev1.PodCondition{c}
}

// pullable is upgradable, and has its target.
func pullable(change ...func(*corev1.Pod)) *corev1.Pod {
	return upgradable(append([]func(*corev1.Pod){func(p *corev1.Pod) {
		p.Annotations = map[string]string{api.TargetAnnotation: `{"revision":"new","containers":[{"name":"app","image":"app:2"}]}`}
	}}, change...)...)
}

func TestImagePullAnswers(t *testing.T) {
	deleting := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} }
	upToDate := func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }
	orphan := func(p *corev1.Pod) { p.OwnerReferences = nil }
	unready := func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: api.ImageCondition, Status: corev1.ConditionFalse})
	}
	noTarget := func(p *corev1.Pod) { p.Annotations = nil }
	badTarget := func(p *corev1.Pod) { p.Annotations[api.TargetAnnotation] = "{" }

	tests := map[string]struct {
		list, delete http.HandlerFunc
		offline      string
		full         error
		code         int
		says         string
	}{
		"a pod that needs an upgrade":                  {podList(pullable()), nil, "", nil, 200, "Image pre-pull requested for pod default/web-1"},
		"a pod whose images are being pulled":          {podList(pullable(unready)), nil, "", nil, 200, "Image pre-pull requested for pod default/web-1"},
		"without the cloud, from the cache":            {podList(pullable()), nil, "offline", nil, 200, "Image pre-pull requested for pod default/web-1"},
		"no such pod":                                  {podList(), nil, "", nil, 404, "there is no pod default/web-1"},
		"no such pod in the cache, without the cloud":  {podList(), nil, "offline since noon", nil, 404, "offline since noon"},
		"being deleted, before all else":               {podList(pullable(deleting, upToDate, orphan)), nil, "", nil, 403, "being deleted"},
		"up to date, before its owner":                 {podList(pullable(upToDate, orphan)), nil, "", nil, 403, "needs no upgrade"},
		"no owner":                                     {podList(pullable(orphan)), nil, "", nil, 400, "no controlling owner"},
		"no target":                                    {podList(pullable(noTarget)), nil, "", nil, 403, "another controller"},
		"a target that cannot be read":                 {podList(pullable(badTarget)), nil, "", nil, 403, "not known which images"},
		"a disk that takes nothing":                    {podList(pullable()), nil, "", errors.New("no space left on device"), 500, "no space left"},
		"a cloud that cannot be reached, and no cache": {away, nil, "", nil, 503, "cannot be reached"},
		"a cloud that fails":                           {refuse(apierrors.NewInternalError(errors.New("short write"))), nil, "", nil, 500, "short write"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			q := &queue{full: tt.full}
			url := (&cloud{list: tt.list, delete: tt.delete}).start(t, Options{ImagePulls: q, Offline: func() string { return tt.offline }})
			call(t, "POST", url+pullWeb1).wants(t, tt.code, tt.says)
			want := map[bool]string{true: "default/web-1 new"}[tt.code == http.StatusOK]
			if got := strings.Join(q.requests, ", "); got != want {
				t.Errorf("asked for %q, want %q", got, want)
			}
		})
	}
}

func TestAPullAfterAnImport(t *testing.T) {
	q := &queue{}
	url := (&cloud{list: podList(pullable())}).start(t, Options{ImagePulls: q})
	call(t, "POST", url+pullWeb1+"?imported=true").wants(t, 200, "Image pre-pull requested for pod default/web-1")
	call(t, "POST", url+pullWeb1+"?imported=some").wants(t, 400, "neither true nor false")
	if got := strings.Join(q.requests, ", "); got != "default/web-1 new imported" {
		t.Errorf("asked for %q", got)
	}
}

func TestTheStateOfAPull(t *testing.T) {
	pulling := api.ImagePull{Namespace: "default", Pod: "web-1", Revision: "new", State: api.Pulling}
	ready := pulling
	ready.State = api.Ready
	url := (&cloud{}).start(t, Options{ImagePulls: &queue{states: []api.ImagePull{pulling, ready}}})

	var got api.ImagePull
	a := call(t, "GET", url+pullWeb1)
	if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.code != 200 || got.State != api.Pulling {
		t.Errorf("got %d %q", a.code, a.body)
	}
	a = call(t, "GET", url+pullWeb1+"?watch=true")
	lines := strings.Split(strings.TrimSpace(a.body), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], `"Pulling"`) || !strings.Contains(lines[1], `"Ready"`) {
		t.Errorf("watched: %q", a.body)
	}
	a = call(t, "GET", url+api.ImagePulls)
	var list api.ImagePullList
	if err := json.Unmarshal([]byte(a.body), &list); err != nil || len(list.Items) != 2 {
		t.Errorf("the queue: %d %q", a.code, a.body)
	}
	checkErrorBody(t, call(t, "GET", url+pullWeb1+"?watch=perhaps"), "neither true nor false")
	other := api.ImagePullPath("default", "web-2")
	for _, method := range []string{"GET", "DELETE"} {
		if a := call(t, method, url+other); a.code != 404 || !strings.Contains(a.body, "default/web-2") {
			t.Errorf("%s of none: %d %q", method, a.code, a.body)
		}
	}
	call(t, "DELETE", url+pullWeb1).wants(t, http.StatusOK, "Image pre-pull cancelled for pod default/web-1")
	if a := call(t, "PUT", url+pullWeb1); a.code != 405 || a.header.Get("Allow") != "DELETE, GET, POST, HEAD" {
		t.Errorf("PUT: %d, Allow %q", a.code, a.header.Get("Allow"))
	}
}

func TestAHubThatPullsNothingSaysSo(t *testing.T) {
	url := (&cloud{list: podList(pullable())}).start(t, Options{})
	for _, method := range []string{"POST", "GET", "DELETE"} {
		if a := call(t, method, url+pullWeb1); a.code != 501 || !strings.Contains(a.body, "--container-runtime-endpoint") {
			t.Errorf("%s: %d %q", method, a.code, a.body)
		}
	}
	if a := call(t, "GET", url+api.ImagePulls); a.code != 200 || !strings.Contains(a.body, `"items": []`) {
		t.Errorf("the queue: %d %q", a.code, a.body)
	}
}
