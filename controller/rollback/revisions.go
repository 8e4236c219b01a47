// Package rollback decides which pods return to an earlier revision because the owners of their nodes
// want it. Such a pod is not replaced: it gets the images of that revision, and kubelet restarts its
// containers.
//
// A node writes its owner's wish as an annotation of the pod, so anyone with the rights of the node can
// forge it. Of the annotation only the hashes of revisions count, and only if the workload has
// ControllerRevisions of these hashes: the images come from there.
//
// Everything here has no effect but its result, and is safe for concurrent use.
package rollback

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// Revisions are the revisions of a workload.
type Revisions struct {
	newest string
	// history has them by hash. It reads them when it is called first: mostly, no owner wants one.
	history func() map[string]*revision

	mu sync.Mutex
	// differences are what differs between two revisions: thousands of pods are of a few.
	differences map[[2]*revision]string
}

type revision struct {
	number   int64
	target   upgrade.Target
	template template // without the images of containers
}

// template is a pod template as the apiserver wrote it, so that fields of a later Kubernetes count
// as well.
type template struct {
	Metadata map[string]any `json:"metadata"`
	Spec     map[string]any `json:"spec"`
}

// NewRevisions returns all revisions of a workload, of which newest is the target. Those that cannot be
// read count as if they were not in the history.
func NewRevisions(newest string, all []*appsv1.ControllerRevision) *Revisions {
	return &Revisions{
		newest: newest, differences: map[[2]*revision]string{},
		history: sync.OnceValue(func() map[string]*revision { return read(all) }),
	}
}

func read(all []*appsv1.ControllerRevision) map[string]*revision {
	out := map[string]*revision{}
	for _, r := range all {
		target, err := daemonset.TargetOf(r)
		if err != nil {
			continue
		}
		var data struct {
			Spec struct {
				Template template `json:"template"`
			} `json:"spec"`
		}
		if json.Unmarshal(r.Data.Raw, &data) != nil {
			continue
		}
		containers, _ := data.Spec.Template.Spec["containers"].([]any)
		for _, c := range containers {
			if c, ok := c.(map[string]any); ok {
				delete(c, "image")
			}
		}
		out[target.Revision] = &revision{number: r.Revision, target: target, template: data.Spec.Template}
	}
	return out
}

// changes returns the images that a pod lacks to be of the revision with this hash, or why more
// than images would change.
func (r *Revisions) changes(pod *corev1.Pod, hash string) (changed []upgrade.Image, problem string) {
	own, want := r.history()[revisionOf(pod)], r.history()[hash]
	switch {
	case own == nil:
		return nil, "the pod's own revision is not in the history"
	case want == nil:
		return nil, "that revision is not in the history"
	}
	if what := r.difference(own, want); what != "" {
		return nil, what + " differs between the two revisions"
	}
	for _, i := range own.target.Containers {
		if c := container(pod, i.Name); c == nil || c.Image != i.Image && !slices.Contains(want.target.Containers, upgrade.Image{Name: i.Name, Image: c.Image}) {
			return nil, fmt.Sprintf("container %s of the pod has another image than the pod template", i.Name)
		}
	}
	changed, ok := upgrade.Changed(&pod.Spec, want.target)
	if !ok {
		return nil, "an init container of the pod has another image than the pod template"
	}
	return changed, ""
}

// difference returns the first field that differs, besides the images of containers, or "".
func (r *Revisions) difference(a, b *revision) string {
	if a == b {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	what, known := r.differences[[2]*revision{a, b}]
	if !known {
		what = firstDifference("metadata", a.template.Metadata, b.template.Metadata)
		if what == "" {
			what = firstDifference("spec", a.template.Spec, b.template.Spec)
		}
		r.differences[[2]*revision{a, b}] = what
	}
	return what
}

func firstDifference(path string, a, b map[string]any) string {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(keys)
	for _, key := range keys {
		if !reflect.DeepEqual(a[key], b[key]) {
			return path + "." + key
		}
	}
	return ""
}

func revisionOf(pod *corev1.Pod) string { return pod.Labels[appsv1.ControllerRevisionHashLabelKey] }

func container(pod *corev1.Pod, name string) *corev1.Container {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == name {
			return &pod.Spec.Containers[i]
		}
	}
	return nil
}
