package history

import (
	"cmp"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
)

// Update records what the pods of the node run. It must be called with all of them, read-only, when
// they are known and after changes.
func (h *History) Update(pods []*corev1.Pod) {
	h.disk.Lock()
	defer h.disk.Unlock()
	h.known = true
	before, after := h.all(), map[types.NamespacedName][]*corev1.Pod{}
	for key := range before {
		after[key] = nil // its pods may have left
	}
	for _, pod := range pods {
		if key := appOf(pod); key.Name != "" {
			after[key] = append(after[key], pod)
		}
	}
	changed := false
	for key, pods := range after {
		a, exists := before[key]
		if !exists {
			a.History = api.DefaultPolicy().History
		}
		next := h.next(a, pods)
		if same := reflect.DeepEqual(a, next); same && !h.unsaved[key] || !exists && !h.makeRoom() {
			continue
		}
		h.put(key, next)
		changed = true
	}
	if changed {
		h.notify()
	}
}

// next returns what is known of an app that had these pods at a later time than a.
func (h *History) next(a app, pods []*corev1.Pod) app {
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	})
	next := a
	next.Revisions, next.Pods = slices.Clone(a.Revisions), nil
	if len(pods) > 0 {
		next.Absent, next.Pods = 0, map[types.UID]seen{}
	}
	for _, pod := range pods {
		_, annotated := pod.Annotations[api.PolicyAnnotation]
		s := a.Pods[pod.UID]
		s.Marked = s.Marked || annotated || api.Condition(pod, api.NeedCondition) != nil
		next.Pods[pod.UID] = s
		if r := current(pod); r.Revision != "" && isReady(pod) && len(r.Encode()) <= maxRevision {
			next.record(pod.UID, r)
		}
	}
	if len(next.Revisions) == 0 {
		return a // none of its pods has been ready yet
	}
	next.setPolicy(pods)
	next.trim()
	return next
}

// record records that a pod runs a revision. Another pod may have run it already.
func (a *app) record(pod types.UID, r revision) {
	s := a.Pods[pod]
	was := s.Revision
	if was == r.Revision {
		return
	}
	s.Revision = r.Revision
	a.Pods[pod] = s
	i := slices.IndexFunc(a.Revisions, func(o revision) bool { return o.Revision == r.Revision })
	if i == 0 {
		return
	}
	if was != "" { // the controller has rolled the pod back
		r.Since = time.Now().UTC().Truncate(time.Second)
	}
	if i > 0 {
		a.Revisions = slices.Delete(a.Revisions, i, i+1)
	}
	a.Revisions = slices.Insert(a.Revisions, 0, r)
}

// trim drops the revisions that no pod runs and the policy does not ask for. It waits until each pod
// runs one: the pod of a new revision may never be ready, and the admin may undo the rollout.
func (a *app) trim() {
	used := map[string]bool{}
	for _, s := range a.Pods {
		used[s.Revision] = true
	}
	if used[""] || len(used) == 0 {
		return
	}
	spare := a.History
	a.Revisions = slices.DeleteFunc(a.Revisions, func(r revision) bool {
		if !used[r.Revision] {
			spare--
		}
		return !used[r.Revision] && spare < 0
	})
}

// setPolicy sets for how many previous revisions images are retained, and whether they are at all.
// A pod that the controller has not seen does not count: it has no policy yet, and the images must not go
// in that time.
func (a *app) setPolicy(pods []*corev1.Pod) {
	first := true
	for _, pod := range pods {
		p, err := api.PolicyOf(pod)
		if err != nil || !a.Pods[pod.UID].Marked {
			continue
		}
		if first {
			a.History, a.Retain, first = 0, false, false
		}
		a.History, a.Retain = max(a.History, p.History), a.Retain || p.Rollback
	}
}

func isReady(pod *corev1.Pod) bool {
	c := api.Condition(pod, corev1.PodReady)
	return pod.DeletionTimestamp == nil && c != nil && c.Status == corev1.ConditionTrue
}
