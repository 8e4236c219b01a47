// Package rollback decides which pods become pods of another revision without being replaced: such a pod gets the images and the
// hash of that revision.
//
// # Back, because the owner of the node wants it
//
// kubelet restarts the containers whose images differ. A node writes its owner's wish as an annotation of the pod, so anyone with
// the rights of the node can forge it. Of the annotation only the hashes of revisions count, and only if the workload has
// ControllerRevisions of these hashes: the images come from there, as admission makes them of that revision's template
// where the apiserver could be asked for that.
//
// # Forward, while the cloud is away
//
// Where a workload permits it, the owner of a node may upgrade a pod in place without the cloud: kubelet is shown the same pod with
// the images of the target. Package ota/inplace is the node's side. The controller's is in two parts.
//
// Before, [Revisions.InPlace] says what such an upgrade would change, or why there can be none. [InPlace.Patch] is what the pod
// would get afterwards; the apiserver is asked for it as a dry run, and the node may upgrade if it answers with the same strings.
// The mark on the pod says so, and admission lets nobody else write it.
//
// Afterwards, the pod runs the new images, and the cloud has the old ones. The hub reports that before it passes on the node's
// first heartbeat, so a node that is Ready again has reported. [Revisions.ReturnOf] decides what becomes of the pod: it
// is left alone until its node knows whether the new version works, and then [Return.Patch] gives it what it runs, whatever the
// target is by then. kubelet sees the images that it was shown before, and restarts nothing. From then on it is a pod like any other: of the target, outdated if
// the admin has moved on, or deleted with its DaemonSet or Node. A pod that cannot be given what it runs keeps its reason as a
// condition, is not deleted by the controller, and is tried again.
//
// A node that was taken over may report what it likes, of its own pods. It has the controller change them to revisions that the workload has, from which only images differ,
// and which the pod would have had if the node had asked for an upgrade or a rollback; never to an image that no revision has. It can
// keep the controller from replacing them, too, as it can keep them running whatever the controller does. Where the workload does not
// permit upgrades in place, a report changes nothing; where the workload has no annotation about them, it gives no condition, Event or alert either.
//
// Everything here is safe for concurrent use.
package rollback

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/ota/api"
)

// Revisions are the revisions of a workload, and what has been found out about rollbacks to them.
type Revisions struct {
	newest string
	all    []*appsv1.ControllerRevision // by name
	// restartsSidecars reports whether the kubelet of a pod restarts a native sidecar whose image changes.
	restartsSidecars func(*corev1.Pod) bool
	// history has them by hash. It reads them when it is called first: mostly, no owner may go back.
	history func() map[string]*revision

	mu sync.Mutex
	// differences are what differs between two revisions: thousands of pods are of a few.
	differences map[[2]*revision]string
	admissions  map[types.UID]admission // by pod
}

type revision struct {
	object *appsv1.ControllerRevision
	target api.Target
	// template is without the images of containers and of native sidecars.
	template template
	sidecars []string // the images of these
}

// template is a pod template as the apiserver wrote it, so that fields of a later Kubernetes count
// as well.
type template struct {
	Metadata map[string]any `json:"metadata"`
	Spec     map[string]any `json:"spec"`
}

// NewRevisions returns all revisions of a workload, of which newest is the target. Those that cannot be
// read count as if they were not in the history. restartsSidecars reports whether the kubelet of a pod restarts a native
// sidecar in place when its image changes.
func NewRevisions(newest string, all []*appsv1.ControllerRevision, restartsSidecars func(*corev1.Pod) bool) *Revisions {
	all = sorted(all)
	return &Revisions{
		newest: newest, all: all, restartsSidecars: restartsSidecars,
		differences: map[[2]*revision]string{}, admissions: map[types.UID]admission{},
		history: sync.OnceValue(func() map[string]*revision { return read(all) }),
	}
}

// Are reports whether r is what NewRevisions returns for these revisions.
func (r *Revisions) Are(newest string, all []*appsv1.ControllerRevision) bool {
	return r != nil && r.newest == newest && slices.EqualFunc(r.all, sorted(all), func(a, b *appsv1.ControllerRevision) bool {
		return a.UID == b.UID && a.Name == b.Name && a.Revision == b.Revision
	})
}

func sorted(all []*appsv1.ControllerRevision) []*appsv1.ControllerRevision {
	return slices.SortedFunc(slices.Values(all), func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Revision, b.Revision))
	})
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
		spec := data.Spec.Template.Spec
		withoutImages(spec["containers"], func(map[string]any) bool { return true })
		sidecars := withoutImages(spec["initContainers"], func(c map[string]any) bool {
			return c["restartPolicy"] == string(corev1.ContainerRestartPolicyAlways)
		})
		out[target.Revision] = &revision{object: r, target: target, template: data.Spec.Template, sidecars: sidecars}
	}
	return out
}

// withoutImages removes the images of those containers, and returns them.
func withoutImages(containers any, those func(map[string]any) bool) (images []string) {
	list, _ := containers.([]any)
	for _, c := range list {
		if c, ok := c.(map[string]any); ok && those(c) {
			image, _ := c["image"].(string)
			images = append(images, image)
			delete(c, "image")
		}
	}
	return images
}

// changes are the images that a pod lacks to be of another revision.
type changes struct {
	InitContainers []api.TargetImage `json:"initContainers,omitempty"`
	Containers     []api.TargetImage `json:"containers,omitempty"`
}

// changes returns the images that a pod lacks to be of the revision with this hash, as a is, or why it cannot become that.
func (r *Revisions) changes(pod *corev1.Pod, hash string, a Admission) (out changes, problem string) {
	own, want := r.history()[revisionOf(pod)], r.history()[hash]
	if problem := r.notInPlace(own, want, func() bool { return r.restartsSidecars(pod) }); problem != "" {
		return out, problem
	}
	if out.InitContainers, problem = a.changes(pod.Spec.InitContainers, own.target.InitContainers, want.target.InitContainers); problem != "" {
		return out, problem
	}
	out.Containers, problem = a.changes(pod.Spec.Containers, own.target.Containers, want.target.Containers)
	return out, problem
}

// notInPlace returns why a pod of the revision own cannot become one of want, or "".
func (r *Revisions) notInPlace(own, want *revision, restartsSidecars func() bool) string {
	switch {
	case own == nil:
		return "the pod's own revision is not in the history"
	case want == nil:
		return "that revision is not in the history"
	}
	if what := r.difference(own, want); what != "" {
		return what + " differs between the two revisions"
	}
	if !slices.Equal(own.sidecars, want.sidecars) && !restartsSidecars() {
		return "the image of a native sidecar differs between the two revisions, and only kubelet " + sidecarsSince.String() + " or later restarts it in place"
	}
	return ""
}

// Origin is where a pod would go back from. Pods with equal ones can go back to the same revisions.
type Origin struct {
	revision         string
	restartsSidecars bool
}

// OriginOf returns that of a pod.
func (r *Revisions) OriginOf(pod *corev1.Pod) Origin {
	return Origin{revisionOf(pod), r.restartsSidecars(pod)}
}

// From returns the earlier revisions, each with why pods with this origin cannot go back to it, "" if they can. nil: they are
// too many to tell each pod.
func (r *Revisions) From(o Origin) map[string]string {
	out := map[string]string{}
	history := r.history()
	for hash, earlier := range history {
		if newest := history[r.newest]; hash == o.revision || newest == nil || earlier.object.Revision >= newest.object.Revision {
			continue
		}
		problem := r.notInPlace(history[o.revision], earlier, func() bool { return o.restartsSidecars })
		if problem != "" {
			problem = fmt.Sprintf(moreThanImages, problem)
		}
		out[hash] = problem
	}
	if len(out) > api.MaxRevisions {
		return nil
	}
	return out
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
