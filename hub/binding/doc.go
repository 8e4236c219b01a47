// Package binding binds the hub's folder to its cluster and its node: what was read in one cluster is neither served nor
// sent in another, and what one node has read is nothing for a machine of another name.
//
// # Which cluster it is
//
// Nothing that a node may read names a cluster, but two objects have UIDs that no other cluster has: Service
// default/kubernetes and the node's own Node. One of the two that is equal is proof enough: either may be deleted and made
// anew, and a rotated CA, another address and a backup that was restored change neither. So another cluster is one where
// both can be read, and both differ: see [Judge].
//
// # Life cycle
//
// [Load] reads the record before anything else in the folder is opened: its owner sets the rest aside if it is another's.
// A [Binding] stands before the apiservers, as the http.RoundTripper of everything that the hub sends. At each return of the
// cloud, and at the start, the first request waits for two of the binding's own, which are sent beside each other. If the cluster is
// another, nothing that has not been sent by then ever is: it is written down, and [Binding.Run] returns [ErrAnother], since the simplest way to
// forget a cluster is a process that has not begun. As long as nothing is known (403, an apiserver that is starting),
// requests go on as if it were the same, and what was kept for the cloud waits unless the answer is a plain 403.
//
// The two objects are read once an hour, too, so that both can be made anew in the course of a node's life, and be
// known by the other one.
//
// # Withheld
//
// There are two states in which the cluster is probably another, and nothing proves it yet. What is cached is not served
// then, and nothing is sent that was kept for the cloud; nothing is deleted either:
//
//   - the hub has started with CAs none of whose keys was among those by which it knew its cluster, and the cloud has not
//     answered yet;
//   - the Service is another, and the Node does not exist, as in a cluster that the node has not registered in yet. That is
//     written down, for a start without the cloud.
package binding
