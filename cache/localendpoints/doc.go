// Package localendpoints makes EndpointSlices follow the pods of this node while the cloud, which
// writes them, is away. A Service then leads to the pods of the node that are ready, with the
// addresses that they have now. Endpoints on other nodes stay as they were read last: nobody
// here knows better. The slice of the apiservers, default/kubernetes, leads to the hub, if pods
// use it. (Package transform has it lead there with the cloud, too, for some readers, by the same function.)
//
// [Apply] and [LeadToHub] are pure functions. A [Tracker] applies them to cached slices, each to
// the copy that a user has read: nobody reads a slice, or an endpoint, that it has not read. It
// keeps no slices. What it knows of the node's pods comes from the node's own views and from
// package overlay, which has the status that kubelet reports meanwhile; both are on disk, so a hub
// that restarts computes the same.
//
// # The return of the cloud
//
// The cloud may have taken all pods of the node out of its slices, because the node was not ready
// for it. A watch that resumes relays these changes one after the other. If clients saw them, they
// would withdraw addresses that work, and add them again as soon as kubelet has reported. So for a
// while the tracker is settling: watches apply what the node's pods were at the return, and what
// kubelet reports from then on, to the slices that the cloud sends. Once the cloud has caught up,
// both are the same. After SettleAfter clients get what is the cloud's in any case.
//
// # The version of a slice
//
// A slice that differs from the cached one has a lower resourceVersion than that, a different one
// after each change. So a client that compares versions sees that it has changed, and one that
// resumes from it misses nothing of the cloud's: at worst it reads changes again, or has to list.
package localendpoints
