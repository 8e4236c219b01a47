package successor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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

// asked has admission answer with err, and returns the verdict for a successor of old. Without quotas, the right to list
// them is missing.
func asked(t *testing.T, err error, spec corev1.PodSpec, old *corev1.Pod, quotas ...*corev1.ResourceQuota) Verdict {
	t.Helper()
	client := fake.NewClientset(old)
	for _, q := range quotas {
		if err := client.Tracker().Add(q); err != nil {
			t.Fatal(err)
		}
	}
	client.PrependReactor("create", "pods", func(a k8stesting.Action) (bool, runtime.Object, error) {
		if got := a.(k8stesting.CreateActionImpl).CreateOptions.DryRun; !slices.Equal(got, []string{metav1.DryRunAll}) {
			t.Errorf("created with dryRun %v", got)
		}
		return true, a.(k8stesting.CreateAction).GetObject(), err
	})
	return ask(t.Context(), client, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "web-"}, Spec: spec}, old)
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
			got := asked(t, tt.err, corev1.PodSpec{}, old, quotaOf("q", "pods=3,requests.cpu=1500m,limits.memory=4Gi,services=3", "pods=3,requests.cpu=1600m,limits.memory=4Gi,services=3"))
			if got.Result != tt.want || !strings.Contains(got.Why, tt.why) || tt.why == "" && got.Why != "" || (got.Pod != nil) != (tt.err == nil) {
				t.Errorf("got %+v, want %s %q", got, tt.want, tt.why)
			}
		})
	}
}

func quotaOf(name, used, limited string) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Status:     corev1.ResourceQuotaStatus{Used: quantities(used), Hard: quantities(limited)},
	}
}

func podWith(requests, limits string) corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{Requests: quantities(requests), Limits: quantities(limits)}}}}
}

// Admission names one quota. Another one may refuse the next pod when the old one is gone.
func TestAllQuotasAreCounted(t *testing.T) {
	old := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1", UID: "1"}, Spec: podWith("cpu=500m", "")}
	const pods, full = "exceeded quota: named, requested: pods=1, used: pods=3, limited: pods=3", "requests.cpu=1600m"
	for name, tt := range map[string]struct {
		refusal string
		next    corev1.PodSpec
		other   *corev1.ResourceQuota
		why     string // "" for Admitted
	}{
		"as much as the old pod frees": {pods, podWith("cpu=500m", ""), quotaOf("other", full, full), ""},
		"more than the old pod frees": {
			pods, podWith("cpu=600m", ""), quotaOf("other", full, full),
			"exceeded quota: other, requested: requests.cpu=600m, used by others: requests.cpu=1100m, limited: requests.cpu=1600m",
		},
		"of the named one": {
			"exceeded quota: other, requested: requests.cpu=600m, used: requests.cpu=1600m, limited: requests.cpu=1600m", podWith("", ""), quotaOf("other", full, full),
			"exceeded quota: other, requested: requests.cpu=600m, used: requests.cpu=1600m, limited: requests.cpu=1600m",
		},
		"what admission lets it request": {
			"exceeded quota: named, requested: pods=1,requests.cpu=600m, used: pods=3,requests.cpu=2, limited: pods=3,requests.cpu=2500m", podWith("", ""),
			quotaOf("other", full, full), "exceeded quota: other, requested: requests.cpu=600m",
		},
		"a request that is the limit": {pods, podWith("", "cpu=600m"), quotaOf("other", full, full), "exceeded quota: other, requested: requests.cpu=600m"},
		"what it does not request":    {pods, podWith("cpu=500m,memory=0", ""), quotaOf("other", "requests.memory=2", "requests.memory=1"), ""},
		"the named one is gone":       {"exceeded quota: gone, requested: count/pods=1, used: count/pods=3, limited: count/pods=1", podWith("", ""), quotaOf("other", full, full), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := asked(t, forbidden(tt.refusal), tt.next, old, quotaOf("named", "pods=3,requests.cpu=2", "pods=3,requests.cpu=2500m"), tt.other)
			if (got.Result == Admitted) != (tt.why == "") || !strings.Contains(got.Why, tt.why) {
				t.Errorf("got %+v, want %q", got, tt.why)
			}
		})
	}
}

// A quota with scopes counts the pods that are in all of them.
func TestScopesOfQuotas(t *testing.T) {
	in := func(name corev1.ResourceQuotaScope, operator corev1.ScopeSelectorOperator, values ...string) corev1.ScopedResourceSelectorRequirement {
		return corev1.ScopedResourceSelectorRequirement{ScopeName: name, Operator: operator, Values: values}
	}
	classes := func(operator corev1.ScopeSelectorOperator, values ...string) corev1.ScopedResourceSelectorRequirement {
		return in(corev1.ResourceQuotaScopePriorityClass, operator, values...)
	}
	none, seconds := corev1.PodSpec{}, int64(60)
	late, high := corev1.PodSpec{ActiveDeadlineSeconds: &seconds}, corev1.PodSpec{PriorityClassName: "high"}
	requests, limits := podWith("cpu=500m", ""), podWith("", "memory=1Gi")
	neighbour := corev1.PodSpec{Affinity: &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{Namespaces: []string{"another"}}},
	}}}
	const counted, frees = true, true
	for name, tt := range map[string]struct {
		scope          corev1.ScopedResourceSelectorRequirement
		next, old      corev1.PodSpec
		counted, frees bool // whether next counts, and old does, too
	}{
		"Terminating":            {in("Terminating", "Exists"), late, late, counted, frees},
		"newly Terminating":      {in("Terminating", "Exists"), late, none, counted, !frees},
		"not Terminating":        {in("Terminating", "Exists"), none, none, !counted, !frees},
		"NotTerminating":         {in("NotTerminating", "Exists"), none, late, counted, !frees},
		"not NotTerminating":     {in("NotTerminating", "Exists"), late, late, !counted, !frees},
		"BestEffort":             {in("BestEffort", "Exists"), none, none, counted, frees},
		"what a LimitRange adds": {in("BestEffort", "Exists"), none, requests, !counted, !frees}, // as it was to the old one
		"requests of BestEffort": {in("BestEffort", "Exists"), requests, none, !counted, !frees},
		"limits of BestEffort":   {in("BestEffort", "Exists"), limits, none, !counted, !frees},
		"NotBestEffort":          {in("NotBestEffort", "Exists"), requests, limits, counted, frees},
		"not NotBestEffort":      {in("NotBestEffort", "Exists"), none, limits, !counted, !frees},
		"class In":               {classes("In", "high", "higher"), high, none, counted, !frees},
		"class not In":           {classes("In", "higher"), high, high, !counted, !frees},
		"class NotIn":            {classes("NotIn", "higher"), high, none, counted, frees},
		"class not NotIn":        {classes("NotIn", "high"), high, none, !counted, !frees},
		"class Exists":           {classes("Exists"), high, none, counted, !frees},
		"class does not Exist":   {classes("Exists"), none, high, !counted, !frees},
		"class DoesNotExist":     {classes("DoesNotExist"), none, none, counted, frees},
		"the default class":      {classes("DoesNotExist"), none, high, !counted, !frees}, // as the old one has got
		"a class":                {classes("DoesNotExist"), high, high, !counted, !frees},
		"pods elsewhere":         {in("CrossNamespacePodAffinity", "Exists"), neighbour, neighbour, counted, frees},
		"newly pods elsewhere":   {in("CrossNamespacePodAffinity", "Exists"), neighbour, none, counted, !frees},
		"no pods elsewhere":      {in("CrossNamespacePodAffinity", "Exists"), none, none, !counted, !frees},
	} {
		t.Run(name, func(t *testing.T) {
			old := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1", UID: "1"}, Spec: tt.old}
			refused := func(named, used string) bool {
				q := quotaOf("other", used, "pods=3")
				if tt.scope.Operator == corev1.ScopeSelectorOpExists {
					q.Spec.Scopes = []corev1.ResourceQuotaScope{tt.scope.ScopeName}
				} else {
					q.Spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{tt.scope}}
				}
				refusal := forbidden("exceeded quota: " + named + ", requested: pods=1, used: " + used + ", limited: pods=3")
				return asked(t, refusal, tt.next, old, quotaOf("named", "pods=3", "pods=3"), q).Result == Refused
			}
			if got := refused("named", "pods=4"); got != tt.counted { // too many, whatever old frees
				t.Errorf("counted: %v", got)
			}
			if got := refused("named", "pods=3"); got != (tt.counted && !tt.frees) {
				t.Errorf("of a quota that is full, refused: %v", got)
			}
			if got := refused("other", "pods=3"); tt.counted && got == tt.frees {
				t.Errorf("by a quota that is named, refused: %v", got)
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
				time.Sleep(unprovedFor)
				if a.Ask(t.Context(), pod, pod); (proofs == 1) != (name == "guarded") {
					t.Errorf("%d proofs after a minute", proofs)
				}
				proofs = 0
				for range int(provedFor / time.Second) { // after 2, 4, 8, 16 minutes
					time.Sleep(time.Second)
					a.Ask(t.Context(), pod, pod)
				}
				if tt.err == nil && proofs != 4 {
					t.Errorf("%d pods were created in the next hour", proofs)
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
	synctest.Test(t, func(t *testing.T) {
		a, b, asked := &Asker{}, &Asker{}, 0
		for range 1000 { // in 10 s
			for n := range 10 {
				if a.MayAsk(fmt.Sprint(n)) {
					asked++
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
		if most := 12 * perSecond; asked > most || asked < most-20 {
			t.Errorf("%d were asked in 10 s, want %d", asked, most)
		}
		one := 0
		for range 1000 {
			if b.MayAsk("one") {
				one++
			}
			time.Sleep(10 * time.Millisecond)
		}
		if most := 12 * perSpace; one > most || one < most-5 {
			t.Errorf("%d of one namespace were asked in 10 s, want %d", one, most)
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
