package nodeapi

import "time"

// PodAccess is in the answer to GET of Cache, as "podAccess", if pods are led to the hub.
type PodAccess struct {
	// Addresses are where pods reach the hub, as HOST:PORT.
	Addresses []string `json:"addresses"`
	// CACreated is when the CA that pods verify the hub with was created, or last rotated. It
	// does not expire.
	CACreated time.Time `json:"caCreated"`
	// Pods are the running pods of the node that have a token for the apiserver, by namespace
	// and name. They are null if it is not known which use the hub; Unknown is the reason then.
	Pods    []PodRoute `json:"pods"`
	Unknown string     `json:"unknown,omitempty"`
}

// Route is where a pod's containers find the apiserver. It is in their environment from their
// start to their end.
type Route string

// The routes of pods.
const (
	ThroughHub Route = "Hub"
	Bypass     Route = "Bypass" // of at least one container
)

// PodRoute is the route of a pod.
type PodRoute struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Route     Route  `json:"route"`
	// Owner is the kind and name of the pod's controlling owner, as DaemonSet/kube-proxy, or empty.
	Owner string `json:"owner,omitempty"`
	// SetsAddress is true if the containers have the address from the pod itself, by its spec, a
	// ConfigMap, a Secret or an image. Then a restart does not change the route.
	SetsAddress bool `json:"setsAddress,omitempty"`
	// Keep is why the pod should not be deleted in order to change its route; empty: it may be.
	Keep string `json:"keep,omitempty"`
}
