package transform

import (
	"cmp"
	"net/http"

	"k8s.io/apimachinery/pkg/types"
)

// PodImages decides which images kubelet reads of pods that are upgraded in place. It must be safe for concurrent use.
type PodImages interface {
	// Idle reports whether Images is nil for all pods, and Knows whether it may be another for one.
	Idle() bool
	Knows(pod types.UID) bool
	// Images returns what replaces the images of a pod of which an apiserver has sent an object of this version, by container;
	// nil if they stay. have are the images of its ordinary containers.
	Images(pod types.UID, version string, have map[string]string) map[string]string
	// Changes returns the pods of which kubelet may have read something else since a generation, 0 for all, and the present
	// generation. changed is closed when there is another.
	Changes(since uint64) (pods map[types.UID]types.NamespacedName, generation uint64, changed <-chan struct{})
}

// NewPodImages returns the transform by which kubelet reads pods with other images than the cloud has. Its watches begin with
// the pods that p names, and follow p: see podWatch.
func NewPodImages(p PodImages) Transform {
	return Transform{
		Name: UpgradeInPlace, Resource: "pods", pods: p,
		reader: func(h http.Header) bool { _, ok := kubeletOf(h); return ok },
		idle:   p.Idle,
		apply: func(o *object) (result, error) {
			if !p.Knows(types.UID(o.meta.UID)) {
				return result{bare: o.bare}, nil
			}
			have, err := o.images()
			if err != nil {
				return result{}, err
			}
			want := p.Images(types.UID(o.meta.UID), string(o.meta.ResourceVersion), have)
			if len(want) == 0 {
				return result{bare: o.bare}, nil
			}
			bare, err := o.withImages(want)
			return result{bare: bare, changed: true}, err
		},
	}
}

// pods returns what decides about the pods that are read, or nil.
func (a *answer) pods() PodImages {
	for _, t := range a.transforms {
		if t.pods != nil {
			return t.pods
		}
	}
	return nil
}

// The fields of a pod and its containers.
var (
	containersPath = []step{{name: "spec", field: 2}, {name: "containers", field: 2, each: true, whole: true}}
	nameStep       = step{name: "name", field: 1}
	imageStep      = step{name: "image", field: 2}
)

// images returns the images of a pod's ordinary containers.
func (o *object) images() (map[string]string, error) {
	images := map[string]string{}
	_, err := o.eachContainer(func(name, container string) (string, error) {
		image, err := texts(o.encoding, []byte(container), imageStep)
		if err == nil {
			images[name] = image[0]
		}
		return container, err
	})
	return images, err
}

// withImages returns the pod with other images of some ordinary containers.
func (o *object) withImages(images map[string]string) ([]byte, error) {
	return o.eachContainer(func(name, container string) (string, error) {
		image, ok := images[name]
		if !ok {
			return container, nil
		}
		edited, err := edit(o.encoding, []byte(container), []step{imageStep}, func(value) value { return value{text: image} })
		return string(edited), err
	})
}

// eachContainer edits the ordinary containers of a pod, in the pod's encoding.
func (o *object) eachContainer(f func(name, container string) (string, error)) ([]byte, error) {
	var failed error
	edited, err := edit(o.encoding, o.bare, containersPath, func(v value) value {
		name, err := texts(o.encoding, []byte(v.text), nameStep)
		if err == nil {
			var text string
			if text, err = f(name[0], v.text); err == nil {
				return value{text: text}
			}
		}
		failed = cmp.Or(failed, err)
		return v
	})
	return edited, cmp.Or(failed, err)
}
