// Package derived has the objects that the hub itself changes while the cloud is away. It answers one question: given the
// copy of an object that a user has cached, what does that user read now, and which watches must be told?
//
// A derived object is the cached copy with an [Update] over it. Which objects a list or watch has stays the same, also
// where a selector asks for a status. There are three sources of updates:
//
//   - Reports (reports.go): status and leases that kubelet writes, with [Objects.Write]. A kubelet that cannot write
//     them retries forever, and relies on what it reads back. They are never sent to the cloud: a kubelet sends its lease
//     within seconds of the return, and its status when its own watch shows it that the cloud does not have it.
//   - Patches of the node's own Node by CNI agents (nodewriters.go), with [Objects.PatchNode]: a report, and a patch
//     that waits for the cloud.
//   - EndpointSlices (slices.go), which follow the pods of the node, and that of the apiservers, which leads to the hub if
//     pods use it. Nobody writes these updates: they are functions of the cached copy, of the node's pods in its own
//     views, and of the reports. Their pure functions are in endpoints.go and apiserver.go. With the cloud, package transform
//     uses them, too: for some readers, it has the slice of the apiservers lead to the hub.
//
// # Who asks
//
// Package answer asks for one object ([Objects.Get]), and for the members of a snapshot ([Objects.List]), for a list and
// for the initial events of a watch. Package watch keeps a [Shown] for each watch, which knows what the watch
// has shown, and returns the events that are due. There is one revision of everything: a held watch waits until it
// changes ([Objects.UntilChange]). Package cache passes on writes, losses and returns of the cloud.
//
// # The return of the cloud
//
// As soon as a watch of the node is opened upstream again, it shows as they are cached the pods and the Node of which it has
// shown anything else ([Shown.Ended]). So kubelet sees what the cloud does not have, and writes it again. A client that has
// read in the outage, from this process or the last one, and opens a watch later, gets the cached state likewise
// ([Shown.NoteRecent]).
//
// Others keep what they were shown until the cloud has a newer version of the object, or until the outage is over, when the
// cloud has been there for SettleAfter ([Objects.KeepsShown]): kube-proxy ends when the addresses of its Node change, and would
// end twice. Of EndpointSlices this holds for the node, too: the cloud may have taken the node's pods out of its slices, because
// the node was not ready for it. If clients saw that, they would withdraw addresses that work, and add them again as soon as
// kubelet has reported. So watches change events of the cloud for slices meanwhile ([Objects.Get]).
//
// Until the outage is over reports are kept: if the cloud is lost again before kubelet has written them, they are the
// only copy ([Objects.Settle]).
//
// # Invariants
//
//   - Views have what an apiserver sent. No derived object is stored in one.
//   - An update lies over a cached object with a certain version and UID. When the cache gets a newer version, or another
//     object of that name, the update is void, dropped or not.
//   - Nobody reads an object, or an endpoint, that it has not read from an apiserver. The node reads its own reports in
//     full. Other users read the status, and a Node's annotations, and only over a copy of the same version.
//   - A report keeps the resourceVersion of the cached object: no version is invented. A slice that differs from the
//     cached one has a lower version than that, a different one after each change. So a client that compares versions
//     sees that it has changed, and one that resumes from it misses nothing of the cloud's: at worst it reads changes
//     again, or has to list.
//   - Reports of pods and nodes, and patches of the Node, are on disk; those of leases are in memory only. Slices are not
//     stored: a hub that restarts computes the same.
//
// # Which patches of the Node are taken
//
// An agent such as flannel's writes the node's address to annotations of the Node when it starts, and does not start
// without. After a boot without the cloud, at another address, the node would have no pod network for the rest of the
// outage. So such a patch is taken:
//
//   - Only annotations that the user's program has written before, and the condition NetworkUnavailable if it has
//     written that, as the managedFields of the node's cached copy say: an agent that finds its annotations right writes
//     none, and one that does not writes only those that differ. Annotations of Kubernetes' own are never taken.
//   - Only from a user whose last PATCH of this Node and subresource an apiserver has answered with success
//     (LearnWriter), and not refused since (ForgetWriter); that is on disk. managedFields name programs, and the
//     name is the client's to choose: without this, any pod that may read the Node could write what another one has
//     written. A user who may patch the Node may claim that, as with the cloud.
//   - Never labels, nor the spec.
//
// Patches of one user and subresource are merged into one, which is on disk without the user's token. When the cloud is
// back it is sent with the user's newest token (Waiting, Sent), with the values that the user has meanwhile written
// itself, if it has (LearnWriter). It is never sent for another object of the Node's name, and if the client named a
// resourceVersion, not over another version.
//
// [Objects] is safe for concurrent use; its mutex is held while a request is applied, and never while a view is read.
package derived
