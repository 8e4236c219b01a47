package cache

import (
	"bytes"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/query"
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
	if c.present += view.SweepEvery; c.present < secretsUnread {
		return
	}
	c.present = 0
	ofNode := sync.OnceValue(c.references)
	dropped := func(of schema.GroupResource) bool { return of == secretsResource || of == configMapsResource }
	needed := func(user, namespace, name string) bool {
		if user == query.NodeUser {
			return ofNode().mayName(namespace, name)
		}
		return c.tokens.Knows(user)
	}
	c.views.DropUnreadObjects(func(_ string, of schema.GroupResource) bool { return dropped(of) }, needed)
	for _, v := range c.views.All() {
		if dropped(v.Key.GVR().GroupResource()) && (v.Key.User != query.NodeUser || v.Key.Name() != "") { // kubelet has none of all
			c.views.DropUnread(v, func(namespace, name string) bool { return needed(v.Key.User, namespace, name) })
		}
	}
}

// kubeletWatchesPods reports whether kubelet is connected, and all pods of the node are known.
func (c *Cache) kubeletWatchesPods() bool {
	here := &corev1.Pod{Spec: corev1.PodSpec{NodeName: c.opts.NodeName}}
	return slices.ContainsFunc(c.views.All(), func(v *view.View) bool {
		k := &v.Key
		return k.User == query.NodeUser && k.GVR().GroupResource() == podsResource && k.Namespace == "" && k.Metadata == "" &&
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
	for o, err := range c.views.Objects(query.NodeUser, podsResource, volumesResource) {
		r.missing = r.missing || err != nil
		r.in[o.Namespace] = append(r.in[o.Namespace], o.Bare)
	}
	return r
}

// mayName reports whether a pod or a volume may refer to a Secret or ConfigMap. Any string in it may
// be the name.
func (r *references) mayName(namespace, name string) bool {
	names := func(b []byte) bool { return bytes.Contains(b, []byte(name)) }
	return r.missing || slices.ContainsFunc(r.in[namespace], names) || slices.ContainsFunc(r.in[""], names)
}
