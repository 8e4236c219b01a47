package ota

import (
	"errors"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
)

func TestVerdictsOfAttempts(t *testing.T) {
	unmarked := func(p *corev1.Pod) { p.Status.Conditions = nil }
	other := func(p *corev1.Pod) { p.UID = "other" }
	newer := condition(api.NeedCondition, corev1.ConditionTrue, api.Message("newer"))
	blocked := func(p *corev1.Pod) {
		p.Annotations = map[string]string{api.TargetAnnotation: api.Target{
			Revision: "new", Containers: []api.TargetImage{{Name: "app", Image: "app:2"}}, Blocked: "the node has a taint",
		}.Encode()}
	}
	large := func(p *corev1.Pod) {
		p.Annotations = map[string]string{api.TargetAnnotation: api.Target{
			Revision: "new", Containers: []api.TargetImage{{Name: "app", Image: "app:2"}},
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5")},
		}.Encode()}
	}
	inHub := refuse(apierrors.NewServiceUnavailable("edgehub: the cloud cannot be reached: connection refused"))
	notFound := refuse(apierrors.NewNotFound(podResource, "web-1"))
	conflict := refuse(apierrors.NewConflict(podResource, "web-1", errors.New("uid")))
	for name, tt := range map[string]struct {
		list    http.HandlerFunc
		delete  http.HandlerFunc // nil: it must not come to that
		pull    api.PullState
		begin   error
		want    Verdict
		success bool
		begun   bool
		missing bool // there is no Node
	}{
		"there is no Node":                             {list: podList(upgradable()), missing: true, want: Unknown},
		"there is no Node, and its pods are gone":      {list: podList(), missing: true, want: Unknown},
		"it is carried out":                            {list: podList(upgradable()), delete: accept, success: true, begun: true},
		"the pod is gone":                              {list: podList(), want: Gone},
		"the pod was replaced":                         {list: podList(upgradable(other)), want: Gone},
		"another pod of its name, that needs none":     {list: podList(upgradable(unmarked, other)), want: Gone},
		"the pod is being deleted":                     {list: podList(upgradable(deleting)), want: Gone},
		"the pod goes away meanwhile":                  {list: podList(upgradable()), delete: notFound, want: Gone, begun: true},
		"the deletion conflicts":                       {list: podList(upgradable()), delete: conflict, want: Unknown, begun: true},
		"no upgrade is needed":                         {list: podList(upgradable(condition(api.NeedCondition, corev1.ConditionFalse, api.Message("new")))), want: Void},
		"the pod is not marked":                        {list: podList(upgradable(unmarked)), want: Void},
		"the target moved on":                          {list: podList(upgradable(newer)), want: Void},
		"the target moved on, and so did the images":   {list: podList(upgradable(newer, condition(api.ImageCondition, corev1.ConditionFalse, api.Message("newer")))), want: Void},
		"nothing would replace it":                     {list: podList(upgradable(ownedBy())), want: Void},
		"its images are being pulled":                  {list: podList(upgradable(condition(api.ImageCondition, corev1.ConditionFalse, api.Message("new")))), want: NoImages},
		"its images are being pulled, unreported":      {list: podList(upgradable()), pull: api.Pulling, want: NoImages},
		"their pre-pull was cancelled, unreported":     {list: podList(upgradable(condition(api.ImageCondition, corev1.ConditionFalse, api.Message("new")))), pull: api.Cancelled, delete: accept, success: true, begun: true},
		"its images are there, unreported":             {list: podList(upgradable()), pull: api.Ready, delete: accept, success: true, begun: true},
		"it would not come back":                       {list: podList(upgradable(blocked))},
		"it has no room":                               {list: podList(upgradable(large))},
		"the queue does not want it any more":          {list: podList(upgradable()), begin: errors.New("not now"), begun: true},
		"the cloud cannot be reached":                  {list: inHub, want: Unknown},
		"the cloud cannot be reached for the deletion": {list: podList(upgradable()), delete: inHub, begun: true},
		"the cloud is busy":                            {list: podList(upgradable()), delete: refuse(apierrors.NewTooManyRequests("later", 1)), begun: true},
		"the cloud forbids it":                         {list: podList(upgradable()), delete: refuse(apierrors.NewForbidden(podResource, "web-1", errors.New("no"))), begun: true},
		"the answer is lost":                           {list: podList(upgradable()), delete: slam, want: Unknown, begun: true},
		"a gateway gives up":                           {list: podList(upgradable()), delete: gatewayError, want: Unknown, begun: true},
		"an apiserver's own 503":                       {list: podList(upgradable()), delete: away, want: Unknown, begun: true},
		"the apiserver fails":                          {list: podList(upgradable()), delete: refuse(apierrors.NewInternalError(errors.New("etcd"))), want: Unknown, begun: true},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.delete == nil {
				tt.delete = func(http.ResponseWriter, *http.Request) { t.Error("the pod was deleted") }
			}
			pulls := new(queue)
			if tt.pull != "" {
				pulls.states = []api.ImagePull{{UID: "uid-1", Revision: "new", State: tt.pull}}
			}
			api, err := New((&cloud{list: tt.list, delete: tt.delete, cpus: "4"}).options(t, Options{ImagePulls: pulls, Unregistered: func() string {
				if tt.missing {
					return "there is no Node"
				}
				return ""
			}}))
			if err != nil {
				t.Fatal(err)
			}
			begun := false
			err = api.Upgrade(t.Context(), Attempt{
				Pod: types.NamespacedName{Namespace: "default", Name: "web-1"}, UID: "uid-1", Revision: "new",
				Begin: func() error { begun = true; return tt.begin },
			})
			if (err == nil) != tt.success || VerdictOf(err) != tt.want || begun != tt.begun {
				t.Errorf("got %v, verdict %d, begun %v; want success %v, verdict %d, begun %v", err, VerdictOf(err), begun, tt.success, tt.want, tt.begun)
			}
		})
	}
}
