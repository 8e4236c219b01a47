package cache

import (
	"bytes"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/records"
	"github.com/edgehub-io/edgehub/cache/view"
)

// secretsUnread is the time after which a Secret or ConfigMap that nobody has read, and nobody on the
// node needs, is dropped. Only time with the cloud and a kubelet that watches its pods counts, since
// the start of the hub: a device that is switched off at night must reach it in a day.
const secretsUnread = 6 * time.Hour

var (
	podsResource       = schema.GroupResource{Resource: "pods"}              //nolint:gochecknoglobals // a constant
	secretsResource    = schema.GroupResource{Resource: "secrets"}           //nolint:gochecknoglobals // a constant
	configMapsResource = schema.GroupResource{Resource: "configmaps"}        //nolint:gochecknoglobals // a constant
	volumesResource    = schema.GroupResource{Resource: "persistentvolumes"} //nolint:gochecknoglobals // a constant
)

// sweepSecrets drops Secrets and ConfigMaps; see secretsUnread. It is called at each sweep while the
// cloud can be reached. What is needed without it stays, however long nobody reads it: kubelet reads
// one for an environment only when it starts a container, and stops the watch of an immutable one.
//
//   - Of the node, that is one whose name stands in one of its pods, or in a volume that kubelet has
//     read. No other is the node allowed to read.
//   - Of another user, that is all, while a token of the user is known; see package identity.
//     The tokens of a pod are forgotten soon after it is deleted.
func (c *Cache) sweepSecrets() {
	if !c.kubeletWatchesPods() {
		return
	}
	if c.present += records.SweepEvery; c.present < secretsUnread {
		return
	}
	c.present = 0
	ofNode := sync.OnceValue(c.references)
	for _, v := range c.views.All() {
		of := v.Key.GVR().GroupResource()
		switch {
		case of != secretsResource && of != configMapsResource:
		case v.Key.User == query.NodeUser && !v.Key.Single && v.Key.Name() == "": // kubelet has none like this
		case v.Key.User == query.NodeUser:
			c.views.DropUnread(v, func(namespace, name string) bool { return ofNode().mayName(namespace, name) })
		default:
			c.views.DropUnread(v, func(string, string) bool { return c.tokens.Knows(v.Key.User) })
		}
	}
}

// kubeletWatchesPods reports whether kubelet is connected, and all pods of the node are known.
func (c *Cache) kubeletWatchesPods() bool {
	here := &corev1.Pod{Spec: corev1.PodSpec{NodeName: c.opts.NodeName}}
	return slices.ContainsFunc(c.views.All(), func(v *view.View) bool {
		k := &v.Key
		return k.User == query.NodeUser && k.GVR().GroupResource() == podsResource && !k.Single && k.Namespace == "" && v.Repr.Metadata == "" &&
			k.Lasting() && k.Selects(here) && v.Holders() > 0 && v.Usable()
	})
}

// references are the pods and volumes of the node, as bytes. A name stands in them as it is, in any
// encoding.
type references struct {
	in      map[string][][]byte // by namespace; that of volumes is ""
	missing bool                // some could not be read
}

func (c *Cache) references() *references {
	r := &references{in: map[string][][]byte{}}
	for _, v := range c.views.All() {
		of := v.Key.GVR().GroupResource()
		if v.Key.User != query.NodeUser || of != podsResource && of != volumesResource {
			continue
		}
		for _, member := range v.MemberNames() {
			e, ok := v.Member(member)
			if !ok {
				continue // it was deleted just now, or the view is denied
			}
			b, err := v.Read(member, e)
			r.missing = r.missing || err != nil
			namespace, _ := query.SplitMember(member)
			r.in[namespace] = append(r.in[namespace], b)
		}
	}
	return r
}

// mayName reports whether a pod or a volume may refer to a Secret or ConfigMap. Any string in it may
// be the name.
func (r *references) mayName(namespace, name string) bool {
	names := func(b []byte) bool { return bytes.Contains(b, []byte(name)) }
	return r.missing || slices.ContainsFunc(r.in[namespace], names) || slices.ContainsFunc(r.in[""], names)
}
