package successor

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
)

// asked has admission answer with err, and returns the verdict for a successor of old.
func asked(t *testing.T, err error, old *corev1.Pod) Verdict {
	t.Helper()
	client := fake.NewClientset(old)
	client.PrependReactor("create", "pods", func(a k8stesting.Action) (bool, runtime.Object, error) {
		if got := a.(k8stesting.CreateActionImpl).CreateOptions.DryRun; !slices.Equal(got, []string{metav1.DryRunAll}) {
			t.Errorf("created with dryRun %v", got)
		}
		return true, a.(k8stesting.CreateAction).GetObject(), err
	})
	return ask(t.Context(), client, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "web-"}}, old)
}

func forbidden(words string) error {
	return apierrors.NewForbidden(corev1.Resource("pods"), "web-x7k2p", errors.New(words))
}

func answered(code int32, words string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Message: words}}
}

func TestVerdicts(t *testing.T) {
	old := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1", UID: "1"}}
	old.Spec.Containers = []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
	}}}
	for name, tt := range map[string]struct {
		err  error
		want Result
		why  string
	}{
		"created": {nil, Admitted, ""},
		"Pod Security": {
			forbidden(`violates PodSecurity "baseline:latest": hostPath volumes (volume "h")`), Refused,
			`violates PodSecurity "baseline:latest": hostPath volumes (volume "h")`,
		},
		"a policy":                        {answered(422, "pods \"web-x7k2p\" is invalid: no"), Refused, `pods "web-x7k2p" is invalid: no`},
		"a webhook":                       {answered(500, `admission webhook "w" denied the request: web-x7k2p is out of order`), Refused, `admission webhook "w" denied`},
		"words of several lines":          {answered(400, "one\n\x1b[31mtwo"), Refused, "one  [31mtwo"},
		"a webhook that is down":          {answered(500, `Internal error occurred: failed calling webhook "w": EOF`), Unknown, "failed calling webhook"},
		"a webhook that takes no dry run": {answered(400, `admission webhook "w" does not support dry run`), Unknown, "does not support dry run"},
		"no right": {
			answered(403, `pods is forbidden: User "system:serviceaccount:edgehub-system:edgehub-controller" cannot create resource "pods" in API group "" in the namespace "default"`),
			Unknown, "cannot create resource",
		},
		"busy":                              {answered(429, "later"), Unknown, "later"},
		"no answer":                         {errors.New("connection reset"), Unknown, "connection reset"},
		"an error of the apiserver":         {answered(500, "etcd"), Unknown, "etcd"},
		"a quota that the old pod fills":    {forbidden("exceeded quota: q, requested: pods=1,requests.cpu=600m, used: pods=3,requests.cpu=1500m, limited: pods=3,requests.cpu=1600m"), Admitted, ""},
		"a quota that is too small":         {forbidden("exceeded quota: q, requested: requests.cpu=700m, used: requests.cpu=1500m, limited: requests.cpu=1600m"), Refused, "exceeded quota: q"},
		"a quota of what the old one lacks": {forbidden("exceeded quota: q, requested: services=1, used: services=3, limited: services=3"), Refused, "exceeded quota: q"},
		"a quota of limits":                 {forbidden("exceeded quota: q, requested: limits.memory=1Gi, used: limits.memory=4Gi, limited: limits.memory=4Gi"), Admitted, ""},
		"a quota in other words":            {forbidden("exceeded quota: q"), Refused, "exceeded quota: q"},
	} {
		t.Run(name, func(t *testing.T) {
			got := asked(t, tt.err, old)
			if got.Result != tt.want || !strings.Contains(got.Why, tt.why) || tt.why == "" && got.Why != "" || (got.Pod != nil) != (tt.err == nil) {
				t.Errorf("got %+v, want %s %q", got, tt.want, tt.why)
			}
		})
	}
}

// The next pod of a StatefulSet has a name that is taken: its images are known all the same.
func TestANameThatIsTaken(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("create", "pods", func(a k8stesting.Action) (bool, runtime.Object, error) {
		pod := a.(k8stesting.CreateAction).GetObject().(*corev1.Pod)
		if pod.Name != "" {
			return true, nil, apierrors.NewAlreadyExists(corev1.Resource("pods"), pod.Name)
		}
		pod = pod.DeepCopy()
		pod.Spec.Containers = []corev1.Container{{Name: "app", Image: "site/app:2"}}
		return true, pod, nil
	})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db-0"}}
	if got := ask(t.Context(), client, pod, pod); got.Result != Admitted || got.Pod == nil || got.Pod.Spec.Containers[0].Image != "site/app:2" {
		t.Errorf("got %+v", got)
	}
}

// Nobody is asked before it is proved that the right is one to dry runs, and again after an hour.
func TestTheRightIsUsedOnlyIfItIsGuarded(t *testing.T) {
	denied := `ValidatingAdmissionPolicy 'edgehub-controller-dry-run' with binding 'edgehub-controller-dry-run' denied request: as dry runs only`
	for name, tt := range map[string]struct {
		err  error // of the creation
		want string
	}{
		"guarded":       {forbidden(denied), ""},
		"not guarded":   {nil, "does not keep the controller from creating pods"},
		"another deny":  {forbidden("ValidatingAdmissionPolicy 'another' with binding 'edgehub-controller-dry-run' denied request: no"), "cannot be proved"},
		"without right": {answered(403, `pods is forbidden: User "u" cannot create resource "pods" in API group ""`), "no right"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, proofs, dryRuns := fake.NewClientset(), 0, 0
				client.PrependReactor("create", "pods", func(a k8stesting.Action) (bool, runtime.Object, error) {
					if len(a.(k8stesting.CreateActionImpl).CreateOptions.DryRun) > 0 {
						dryRuns++
						return true, a.(k8stesting.CreateAction).GetObject(), nil
					}
					proofs++
					return tt.err != nil, nil, tt.err
				})
				var log bytes.Buffer
				a := &Asker{Client: client, Namespace: "edgehub-system", Logger: slog.New(slog.NewTextHandler(&log, nil))}
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "web-"}}
				for range 3 {
					if v := a.Ask(t.Context(), pod, pod); (v.Result == Admitted) != (tt.want == "") || !strings.Contains(v.Why, tt.want) {
						t.Errorf("got %+v", v)
					}
				}
				if left, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}); err != nil || len(left.Items) > 0 {
					t.Errorf("pods are left: %v, %v", left, err)
				}
				if proofs != 1 || dryRuns > 0 && tt.want != "" || strings.Count(log.String(), "\n") != 1 {
					t.Errorf("%d proofs, %d dry runs, log:\n%s", proofs, dryRuns, log.String())
				}
				time.Sleep(unprovedFor) // what was really created is not tried again so soon
				if a.Ask(t.Context(), pod, pod); (proofs == 1) != (name == "guarded" || name == "not guarded") {
					t.Errorf("%d proofs after a minute", proofs)
				}
				proofs = 0
				time.Sleep(provedFor)
				if a.Ask(t.Context(), pod, pod); proofs != 1 {
					t.Errorf("%d proofs after an hour", proofs)
				}
			})
		})
	}
}

// Many workloads that lack pods do not have the apiserver asked more often than this.
func TestQuestionsAboutMissingPodsAreLimited(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		a, asked := &Asker{}, 0
		for range 1000 { // in 10 s
			if a.MayAsk(5) {
				asked += 5
			}
			time.Sleep(10 * time.Millisecond)
		}
		if most := 12 * missingPerSecond; asked > most || asked < most-10 {
			t.Errorf("%d were asked in 10 s, want %d", asked, most)
		}
	})
}

func revisionOf(t *testing.T, kind string, template corev1.PodTemplateSpec) *appsv1.ControllerRevision {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"spec": map[string]any{"template": template}})
	if err != nil {
		t.Fatal(err)
	}
	isController := true
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "db-6d9c", Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: "6d9c"},
			OwnerReferences: []metav1.OwnerReference{{Kind: kind, Name: "db", UID: "9", Controller: &isController}},
		},
		Data: runtime.RawExtension{Raw: raw},
	}
}

// What its controller takes from a StatefulSet and the pod's name is in the successor.
func TestTheSuccessorInAStatefulSet(t *testing.T) {
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "db"}}}
	template.Spec.Volumes = []corev1.Volume{{Name: "data"}, {Name: "tmp"}}
	sts := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db", UID: "9"}}
	sts.Spec.ServiceName = "db"
	sts.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
	old := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db-3"}}
	pod, err := PodOf(sts, revisionOf(t, "StatefulSet", template), old)
	if err != nil {
		t.Fatal(err)
	}
	if pod.Name != "db-3" || pod.GenerateName != "" || pod.Spec.Hostname != "db-3" || pod.Spec.Subdomain != "db" || pod.Spec.Affinity != nil ||
		pod.Labels["apps.kubernetes.io/pod-index"] != "3" || pod.Labels["statefulset.kubernetes.io/pod-name"] != "db-3" || pod.Labels["controller-revision-hash"] != "db-6d9c" {
		t.Errorf("got %+v", pod)
	}
	if v := pod.Spec.Volumes; len(v) != 2 || v[0].PersistentVolumeClaim == nil || v[0].PersistentVolumeClaim.ClaimName != "data-db-3" || v[1].Name != "tmp" {
		t.Errorf("volumes %+v", v)
	}
}
