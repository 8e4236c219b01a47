package successor

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	podresources "k8s.io/component-helpers/resource"

	"github.com/edgehub-io/edgehub/ota/api"
)

// exceeded is how the apiserver's quota admission refuses (CheckRequest in
// k8s.io/apiserver/pkg/admission/plugin/resourcequota). It names one quota, and of that what is exceeded.
var exceeded = regexp.MustCompile(`exceeded quota: (\S+), requested: (\S+), used: (\S+), limited: (\S+)$`)

// refusalWithout returns why admission refuses pod once old is gone, which counts in quotas until then; ""
// if it does not. err is the refusal while old is there.
//
// All quotas of the namespace are counted. What pod counts for is what err says, and of resources that
// err does not name, what the pod that was sent asks for, since a refusal returns no object. That misses what
// admission adds: a LimitRange's default requests, injected containers, the overhead of a RuntimeClass,
// the default PriorityClass. A quota that is exceeded by these alone is not seen, and one whose scope they may decide counts
// only if old is in it, too.
func refusalWithout(ctx context.Context, client kubernetes.Interface, err error, pod, old *corev1.Pod) string {
	match := exceeded.FindStringSubmatch(err.Error())
	if match == nil || old.UID == "" { // no pod is there that could give way
		return words(err)
	}
	named := corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: match[1]}}
	named.Status.Used, named.Status.Hard = quantities(match[3]), quantities(match[4])
	requested, ofNamed := usageOf(pod), quantities(match[2])
	maps.Copy(requested, ofNamed)
	pods, listErr := client.CoreV1().Pods(old.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, old.Name).String(),
	})
	if listErr != nil || len(ofNamed) == 0 || len(pods.Items) != 1 || pods.Items[0].UID != old.UID {
		return words(err)
	}
	old = &pods.Items[0]
	quotas, listErr := client.CoreV1().ResourceQuotas(old.Namespace).List(ctx, metav1.ListOptions{})
	if listErr != nil {
		return words(err)
	}
	for i := range quotas.Items {
		q := &quotas.Items[i]
		if q.Name != named.Name && (!selects(q, pod) || admissionDecides(q, pod) && !selects(q, old)) {
			continue
		}
		var frees corev1.ResourceList
		if selects(q, old) {
			frees = usageOf(old)
		}
		switch why := exceededBy(q, requested, frees); {
		case why == "":
		case q.Name == named.Name:
			return words(err)
		default:
			return why
		}
	}
	return ""
}

// exceededBy returns what a quota has no room for, "" if there is room for all that is requested.
func exceededBy(q *corev1.ResourceQuota, requested, frees corev1.ResourceList) string {
	for _, name := range slices.Sorted(maps.Keys(requested)) {
		more, used := requested[name], q.Status.Used[name].DeepCopy()
		limit, ok := q.Status.Hard[name]
		if !ok || more.IsZero() {
			continue
		}
		used.Sub(frees[name])
		after := used.DeepCopy()
		after.Add(more)
		if after.Cmp(limit) > 0 {
			return fmt.Sprintf("exceeded quota: %[1]s, requested: %[2]s=%[3]s, used by others: %[2]s=%[4]s, limited: %[2]s=%[5]s",
				q.Name, name, more.String(), used.String(), limit.String())
		}
	}
	return ""
}

// selects reports whether a pod is in all scopes of a quota (podMatchesScopeFunc in Kubernetes'
// pkg/quota/v1/evaluator/core).
func selects(q *corev1.ResourceQuota, pod *corev1.Pod) bool {
	var scopes []corev1.ScopedResourceSelectorRequirement
	for _, scope := range q.Spec.Scopes {
		scopes = append(scopes, corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists})
	}
	if q.Spec.ScopeSelector != nil {
		scopes = append(scopes, q.Spec.ScopeSelector.MatchExpressions...)
	}
	return !slices.ContainsFunc(scopes, func(s corev1.ScopedResourceSelectorRequirement) bool { return !inScope(pod, s) })
}

// admissionDecides reports whether a scope of a quota depends on what admission may add to pod: requests, or a PriorityClass.
func admissionDecides(q *corev1.ResourceQuota, pod *corev1.Pod) bool {
	scopes := slices.Clone(q.Spec.Scopes)
	if q.Spec.ScopeSelector != nil {
		for _, s := range q.Spec.ScopeSelector.MatchExpressions {
			scopes = append(scopes, s.ScopeName)
		}
	}
	return slices.ContainsFunc(scopes, func(scope corev1.ResourceQuotaScope) bool {
		switch scope {
		case corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort:
			return bestEffort(pod)
		case corev1.ResourceQuotaScopePriorityClass:
			return pod.Spec.PriorityClassName == ""
		}
		return false
	})
}

// inScope reports whether a pod is in a scope. It is in none that later releases may have.
func inScope(pod *corev1.Pod, s corev1.ScopedResourceSelectorRequirement) bool {
	class, listed := pod.Spec.PriorityClassName, slices.Contains(s.Values, pod.Spec.PriorityClassName)
	switch s.ScopeName {
	case corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating:
		return (pod.Spec.ActiveDeadlineSeconds != nil) == (s.ScopeName == corev1.ResourceQuotaScopeTerminating)
	case corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort:
		return bestEffort(pod) == (s.ScopeName == corev1.ResourceQuotaScopeBestEffort)
	case corev1.ResourceQuotaScopePriorityClass:
		return s.Operator == corev1.ScopeSelectorOpIn && listed || s.Operator == corev1.ScopeSelectorOpNotIn && !listed ||
			s.Operator == corev1.ScopeSelectorOpExists && class != "" || s.Operator == corev1.ScopeSelectorOpDoesNotExist && class == ""
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return looksAcrossNamespaces(pod.Spec.Affinity)
	}
	return false
}

// looksAcrossNamespaces reports whether an affinity may be about pods of other namespaces (usesCrossNamespacePodAffinity in the same
// package of Kubernetes).
func looksAcrossNamespaces(a *corev1.Affinity) bool {
	if a == nil {
		return false
	}
	var terms []corev1.PodAffinityTerm
	add := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		terms = append(terms, required...)
		for _, p := range preferred {
			terms = append(terms, p.PodAffinityTerm)
		}
	}
	if p := a.PodAffinity; p != nil {
		add(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if p := a.PodAntiAffinity; p != nil {
		add(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool { return len(t.Namespaces) > 0 || t.NamespaceSelector != nil })
}

// bestEffort reports whether the QoS class of a pod is BestEffort, or would be that of one that was not created yet.
func bestEffort(pod *corev1.Pod) bool {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass == corev1.PodQOSBestEffort
	}
	usage := usageOf(pod)
	return !slices.ContainsFunc([]corev1.ResourceName{
		corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory,
	}, func(name corev1.ResourceName) bool { return usage.Name(name, resource.DecimalSI).Sign() > 0 })
}

// quantities reads pods=1,requests.cpu=200m.
func quantities(text string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for pair := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(pair, "=")
		if q, err := resource.ParseQuantity(value); err == nil {
			out[corev1.ResourceName(name)] = q
		}
	}
	return out
}

// usageOf is what a quota counts of a pod, by the names of a quota.
func usageOf(pod *corev1.Pod) corev1.ResourceList {
	pod = api.WithDefaultRequests(&pod.Spec)
	one := resource.MustParse("1")
	out := corev1.ResourceList{corev1.ResourcePods: one, "count/pods": one}
	for name, q := range podresources.PodRequests(pod, podresources.PodResourcesOptions{}) {
		out[name], out["requests."+name] = q, q
	}
	for name, q := range podresources.PodLimits(pod, podresources.PodResourcesOptions{}) {
		out["limits."+name] = q
	}
	return out
}
