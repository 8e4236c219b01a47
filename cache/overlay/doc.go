// Package overlay keeps what a node says of itself while nobody listens: the status of
// the node and of its pods, and its lease.
//
// A kubelet that cannot write them retries forever, and takes what it reads back for the
// truth. So an update is applied to the object that was cached, the client gets the
// merged object, and whoever reads it as the node does sees it too. Nothing of it is
// ever sent: a kubelet sends its status and its lease again within seconds of the
// return, from what is then so.
//
// # What holds
//
//   - An update lies over a cached object of a version, and of a UID. When the cache has
//     got a newer one, or another one of the same name, the update is void, whether or
//     not Drop was called.
//   - The resourceVersion stays that of the cached object: no version is made up.
//   - Updates are in memory only. A hub that is restarted shows what the cloud had.
//
// # Life cycle
//
// New, then Apply and Get while the cloud is away, and Drop when it answers again. An
// Overlay is safe for concurrent use; updates of one object follow one another.
package overlay
