package view

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/versions"
)

// recordDeletedPods records as deleted the pods that were read by GET and that a list of a
// node's pods should contain but does not: a pod leaves such a view only by deletion. The
// pods need not have been members of the view, which may have been evicted meanwhile.
func (s *Views) recordDeletedPods(b *Builder, version string) {
	of, key := b.View.Key.UserResource(), &b.View.Key
	if of.Resource.GroupResource() != (schema.GroupResource{Resource: "pods"}) || key.Proves() || !key.Lasting() {
		return
	}
	for _, c := range b.View.of.readUpTo(version) {
		if _, ok := b.Items[c.Name]; ok {
			continue
		}
		// Since the copy was read, a new pod of that name may have started on another node.
		if pod := c.pod(); pod != nil && key.Selects(pod) {
			s.Gone(of, c.Name, pod.ResourceVersion, pod.UID, true)
		}
	}
}

// readUpTo returns the whole objects that were read at a version or earlier.
func (r *resource) readUpTo(version string) (all []Copy) {
	r.lock()
	defer r.unlock()
	for _, e := range r.entries {
		if i := slices.IndexFunc(e.copies, Copy.Whole); i >= 0 && versions.Compare(e.version(), version) <= 0 {
			all = append(all, e.copies[i])
		}
	}
	return all
}

// pod reads a copy that is a pod; nil if it cannot be read.
func (c *Copy) pod() *corev1.Pod {
	o, err := c.Object()
	if err != nil {
		return nil
	}
	object, _ := convert.FromBare(o.Repr.Encoding, o.Type, o.Bare)
	pod, _ := object.(*corev1.Pod) // nil is no pod
	return pod
}

// RecordShown records that a client was shown the items of a list, or of initial events, of which the end may never
// come: older copies are in doubt.
func (s *Views) RecordShown(b *Builder) {
	r := b.View.of
	r.lock()
	defer r.unlock()
	for name, item := range b.Items {
		r.doubtOlderLocked(name, item.Version)
	}
}

// doubtOlderLocked puts copies of an object in doubt that are older than a version.
func (r *resource) doubtOlderLocked(name, version string) {
	namespace, _ := query.SplitMember(name)
	k := r.lookLocked(namespace, name)
	if newest := newestOf(k.live); newest != "" && versions.Valid(version) && versions.Compare(newest, version) < 0 {
		r.doubtLocked(name, versions.Preceding(version))
	}
}

// retire drops a view. If it proves the absence of objects of which the user
// has copies, that is recorded first.
func (s *Views) retire(v *View) {
	r := v.of
	r.lock()
	defer r.unlock()
	if v.Key.Proves() && v.hasStateLocked() {
		for name := range r.copiedLocked(v.Key.OnlyMember()) {
			namespace, _ := query.SplitMember(name)
			switch at, usable := v.absentAt(namespace, name); {
			case at == "" || !r.showsLocked(name, at):
			case usable:
				r.goneLocked(name, at, "", true)
			default: // the client has seen it, and may not see more
				r.doubtLocked(name, at)
			}
		}
	}
	v.dropLocked()
}

// copiedLocked returns the names of all objects with a copy, or only that one if it has.
func (r *resource) copiedLocked(only string) map[string]bool {
	names := map[string]bool{}
	if only != "" {
		if r.holdsLocked(only) {
			names[only] = true
		}
		return names
	}
	for name, e := range r.entries {
		if len(e.copies) > 0 {
			names[name] = true
		}
	}
	for _, v := range r.viewsLocked() {
		for i := range v.members {
			names[v.members[i].Name] = true
		}
	}
	return names
}

// showsLocked reports whether a copy shows an object at a version or earlier.
func (r *resource) showsLocked(name, version string) bool {
	if e := r.entries[name]; e != nil && len(e.copies) > 0 && versions.Compare(e.version(), version) <= 0 {
		return true
	}
	return slices.ContainsFunc(r.viewsLocked(), func(v *View) bool {
		rev, ok := v.get(name)
		return ok && !v.stale.Load() && versions.Compare(v.version, version) <= 0 && versions.Compare(rev.Version, version) <= 0
	})
}
