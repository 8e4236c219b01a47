package api

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
	// ClusterIP is absent without --cluster-ip=always.
	ClusterIP *ClusterIP `json:"clusterIP,omitempty"`
}

// ClusterIP is where the cluster IP of the Service default/kubernetes leads while the cloud is there.
type ClusterIP struct {
	// InForce means to the hub. Otherwise it leads past it, because there are pods that do not trust the hub:
	// see PodRoute.Distrusts.
	// While that is not known, as PodAccess.Unknown says, what was decided before stays.
	InForce bool `json:"inForce"`
}

// Route is where a pod's containers look for the apiserver.
type Route string

// The routes of pods, by what the containers have in their environment, from their start to their end.
const (
	ThroughHub Route = "Hub"
	Bypass     Route = "Bypass" // of at least one container
	Proxied    Route = "Proxy"  // the hub's address, for which at least one container uses a proxy
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
	// Distrusts is true if a container of the pod was started without the hub's CA, and so can only verify the
	// apiserver. It keeps --cluster-ip=always from being in force until the pod restarts.
	Distrusts bool `json:"distrusts,omitempty"`
	// Proxy is why what the pod sends to the hub goes to a proxy, or would after a restart, and what to
	// do; empty: it does not. Keep is the same if a restart alone does not change that.
	Proxy string `json:"proxy,omitempty"`
	// Keep is why the pod should not be deleted in order to change its route; empty: it may be.
	Keep string `json:"keep,omitempty"`
}
