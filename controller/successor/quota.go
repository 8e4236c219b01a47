package successor

import (
	"context"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	podresources "k8s.io/component-helpers/resource"
)

// exceeded is how the apiserver's quota admission refuses (checkRequest in
// k8s.io/apiserver/pkg/admission/plugin/resourcequota): only what is exceeded is named.
var exceeded = regexp.MustCompile(`exceeded quota: \S+, requested: (\S+), used: (\S+), limited: (\S+)$`)

// fitsQuota reports whether an error is about a quota that the successor exceeds only while the old
// pod is there.
func fitsQuota(ctx context.Context, client kubernetes.Interface, refusal string, old *corev1.Pod) bool {
	match := exceeded.FindStringSubmatch(refusal)
	if match == nil {
		return false
	}
	requested, used, limited := quantities(match[1]), quantities(match[2]), quantities(match[3])
	list, err := client.CoreV1().Pods(old.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, old.Name).String(),
	})
	if err != nil || len(list.Items) != 1 || list.Items[0].UID != old.UID {
		return false
	}
	frees := usageOf(&list.Items[0])
	for name, after := range requested {
		limit, ok := limited[name]
		if !ok {
			return false
		}
		after.Add(used[name])
		after.Sub(frees[name])
		if after.Cmp(limit) > 0 {
			return false
		}
	}
	return len(requested) > 0
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
