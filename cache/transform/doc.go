// Package transform changes what the node's own programs read of a few objects, so that a
// node's pods use the hub as their apiserver.
//
// A [Transform] is a pure function of one object's bytes. A [Transport] applies it to the
// answers to GET, LIST and watch requests with the node's identity, between the cache and the
// proxy: the cache keeps what the apiserver sent, and a relist, a resumed watch or an answer
// without the cloud is transformed like any other. Everybody else gets the apiserver's bytes,
// and so does the node for every other object. Tables and metadata alone have none of the
// fields that are changed, and pass as they are.
//
// An object that cannot be transformed is an error of the whole answer: kubelet would start
// pods with the apiserver's address and nobody would know why they fail during an outage.
// A GET or LIST becomes a 500, a watch ends with an ERROR event.
//
// A Transport reads a LIST as a whole before the client gets any of it, up to 64 MiB. It is
// safe for concurrent use.
package transform
