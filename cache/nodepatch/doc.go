// Package nodepatch keeps what CNI agents write to the Node that they run on while the cloud is away.
//
// An agent such as flannel's writes the node's address to annotations of the Node when it starts, and
// does not start without. After a boot without the cloud, at another address, the node would have no
// pod network for the rest of the outage. So such a patch is taken from a user whom an apiserver has
// let do the same before.
//
// # What is taken
//
//   - Only from a user whose last PATCH of this Node and subresource an apiserver has answered with
//     success (Learn), and not refused since (Forget). Both are on disk.
//   - Only annotations that the user's program has written before, and the condition
//     NetworkUnavailable if it has written that, by the Node's managedFields: an agent that
//     finds its annotations right writes none. The name of the field manager is the client's to
//     choose: a user who may patch the Node may claim what another one has written, as with
//     the cloud. Annotations of Kubernetes' own are never taken.
//   - Never labels, nor the spec.
//
// # What becomes of it
//
// Patches of one user and subresource are merged into one (Add), which is on disk without the
// user's token. When the cloud is back it is sent with the user's newest token (Waiting, Done), with
// the values that the user has meanwhile written itself, if it has (Learn). It is never sent for another
// object of the Node's name, and if the client named a resourceVersion, not over another version.
//
// Patches is safe for concurrent use.
package nodepatch
