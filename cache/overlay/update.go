package overlay

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/patch"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// Update is an updated object. It is read-only.
type Update struct {
	Object // the whole of it

	Key                  Key
	UID, ResourceVersion string // of the cached object beneath
	Revision             uint64 // of the overlay

	labels labels.Set
	fields fields.Set // of a pod

	lay func(cached Object) (Object, error) // of a computed update
}

// Computed returns an update that nobody has written: it follows from the cached object and from
// what the hub knows besides. lay returns the object that everybody reads instead of the cached
// one; it must always return the same, and is called by any goroutine. The update is in no
// Overlay, nor on disk.
func Computed(key Key, t wire.TypeMeta, uid, resourceVersion string, revision uint64, lay func(cached Object) (Object, error)) *Update {
	return &Update{Object: Object{Type: t}, Key: key, UID: uid, ResourceVersion: resourceVersion, Revision: revision, lay: lay}
}

// isShown is Shows for the key's resource.
func (k *Key) isShown() bool { return Shows(k.Group, k.Resource) }

// Shows reports whether lists and watches show the updates of a resource. Those of leases are not
// shown: only the kubelet's own renewal needs them.
func Shows(group, resource string) bool {
	return group == corev1.GroupName && (resource == "pods" || resource == "nodes")
}

// Over reports whether u lies over the cached object. For the node's own reads, that may be an
// older version of the updated object, which may be cached in two representations. For other
// users it must be the same version: they see nothing that they have not read.
func (u *Update) Over(m *wire.Meta, own bool) bool {
	if u.UID != string(m.UID) {
		return false
	}
	if !own {
		return u.ResourceVersion == string(m.ResourceVersion)
	}
	return !patch.Older(u.ResourceVersion, string(m.ResourceVersion))
}

// Lay returns the cached object with the reported status, or cached itself if u does not lie over
// it. The node reads its update of that version in full. The result's encoding may differ.
func (u *Update) Lay(cached Object, own bool) (Object, error) {
	m, err := wire.Inspect(cached.Encoding, cached.Bare)
	if err != nil {
		return Object{}, fmt.Errorf("read the cached %s %s: %w", u.Key.Resource, u.Key.Name, err)
	}
	switch {
	case !u.Over(&m, own):
		return cached, nil
	case u.lay != nil:
		return u.lay(cached)
	case own && (u.ResourceVersion == string(m.ResourceVersion) || !u.Key.isShown()):
		return u.Object, nil
	}
	to, err := convert.FromBare(cached.Encoding, u.Type, cached.Bare)
	if err != nil {
		return Object{}, err
	}
	from, err := convert.FromBare(u.Encoding, u.Type, u.Bare)
	if err != nil {
		return Object{}, err
	}
	copyStatus(to, from)
	bare, err := convert.ToBare(cached.Encoding, to)
	return Object{Type: u.Type, Encoding: cached.Encoding, Bare: bare}, err
}

// selectable sets what selectors match.
func (u *Update) selectable(object runtime.Object) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	ip := pod.Status.PodIP
	if len(pod.Status.PodIPs) > 0 {
		ip = pod.Status.PodIPs[0].IP
	}
	u.labels = pod.Labels
	u.fields = fields.Set{
		"metadata.name": pod.Name, "metadata.namespace": pod.Namespace,
		"spec.nodeName": pod.Spec.NodeName, "spec.restartPolicy": string(pod.Spec.RestartPolicy), "spec.schedulerName": pod.Spec.SchedulerName,
		"spec.serviceAccountName": pod.Spec.ServiceAccountName, "spec.hostNetwork": fmt.Sprint(pod.Spec.HostNetwork),
		"status.phase": string(pod.Status.Phase), "status.podIP": ip, "status.nominatedNodeName": pod.Status.NominatedNodeName,
	}
}

// SelectsStatus reports whether a field selector depends on the status.
func SelectsStatus(selector string) bool { return strings.Contains(selector, "status.") }

// MatchesFields reports whether the updated object matches a field selector, if that selects by
// status and is valid; otherwise it returns true.
func (u *Update) MatchesFields(selector string) bool {
	if u.fields == nil || !SelectsStatus(selector) {
		return true
	}
	s, err := fields.ParseSelector(selector)
	return err != nil || s.Matches(u.fields)
}

// Matches reports whether the updated object matches a query.
func (u *Update) Matches(namespace, labelSelector, fieldSelector string) bool {
	if u.fields == nil || namespace != "" && namespace != u.Key.Namespace {
		return false
	}
	byLabels, err := labels.Parse(labelSelector)
	if err != nil || !byLabels.Matches(u.labels) {
		return false
	}
	byFields, err := fields.ParseSelector(fieldSelector)
	return err == nil && byFields.Matches(u.fields)
}
