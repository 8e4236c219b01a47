// Package overlay keeps what a node says of itself while nobody listens: the status of
// the node and of its pods, and its lease.
//
// A kubelet that cannot write them retries forever, and takes what it reads back for the
// truth. So an update is applied to the object that was cached, the client gets the
// merged object, and everybody who has read the object sees the status, too. Nothing of
// it is ever sent: a kubelet sends its lease again within seconds of the return, and its
// status when its own watch shows it that the cloud does not have it.
//
// # What holds
//
//   - An update lies over a cached object of a version, and of a UID. When the cache has
//     got a newer one, or another one of the same name, the update is void, whether or
//     not Drop was called.
//   - The resourceVersion stays that of the cached object: no version is made up.
//   - The node reads its own updates as a whole. Other users read the status, and only
//     over a copy of the same object at the same version.
//   - Updates of pods and nodes are in a table, too, so that a hub that is restarted shows
//     them again. Those of leases are in memory only.
//
// # Life cycle
//
// New and Load, then Apply, Find and Updates while the cloud is away, and Drop when it has been
// back for so long that the kubelet has said everything again. Where it is lost before,
// updates are shown again, unless they are void. OnChange notifies whoever shows updates to clients. An
// Overlay is safe for concurrent use; updates of one object follow one another.
package overlay
