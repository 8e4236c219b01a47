// Package transform changes what some clients read of some objects.
//
// A [Transform] is a function of one object's bytes. A [Transport] applies it to the answers to
// GET, LIST and watch requests, between the cache and the proxy: the cache keeps what the
// apiserver sent, and a resumed watch or an answer without the cloud is transformed
// like any other. Everybody else gets the apiserver's bytes, and so do the same clients for
// every other object. Tables and metadata alone have none of the fields that are changed, and
// pass as they are. There are two kinds.
//
// # What the node reads
//
// A few objects differ for requests with the node's identity, so that a node's pods use the hub
// as their apiserver. Pods differ for kubelet alone, since others with that identity may want to
// know what the cloud says; kubelet never writes them, but patches their status. An object that
// cannot be transformed is an error of the whole answer: kubelet would start pods with the
// apiserver's address and nobody would know why they fail during an outage. A GET or LIST becomes
// a 500, a watch ends with an ERROR event.
//
// kubelet alone, too, reads other images of pods that are upgraded in place, as a [PodImages] decides; its watches follow that,
// see podWatch.
//
// # Filters of Services
//
// kube-proxy and CoreDNS read some Services, and some endpoints of Services, only where an
// annotation of the Service says so. Package topology decides; a filter has no effect on
// Services without an annotation.
//
// A client is known by the service account that its bearer token names. The claim is not
// verified here, and need not be: an answer is filtered after the apiserver, or offline the
// cache, has accepted the token, and a filter only takes away from what the caller may read. A
// forged claim gives its author less in its own answers, and changes nobody else's. Nor does it
// have the topology read, or wait for it. For the same reason it is no access control: with
// another token the same user reads everything.
//
// What cannot be filtered passes: kube-proxy must not lose all Services because of one author's.
//
// A watch follows the topology, see followed. A Service that begins to be dropped is DELETED
// there, and ADDED when it ceases to be. A slice that has other endpoints now is MODIFIED, and has another
// resourceVersion, since informers do not report an object whose version they know; see
// filteredVersion. After such an event, a bookmark has the client resume from the version that
// the stream has reached.
//
// # The apiserver's endpoints
//
// With --cluster-ip=always, such a filter has kube-proxy read EndpointSlices of default/kubernetes that lead to the
// hub while topology.State says so. No annotation decides that, and no version names the decision: a client that
// resumes a watch is sent them again.
//
// # Bounds
//
// A Transport reads a LIST as a whole before the client gets any of it, up to 64 MiB. A longer
// one is an error for the node, and passes filters. It is safe for concurrent use.
package transform
