// Package topology holds what the filters of Services know of the cluster: the annotations of
// all Services, and this node's zone and node pool. It decides which endpoints of a Service its
// clients on this node read, and which Services they do not read.
//
// A [State] is fed by its caller (see hub/feed), and read by package transform. Every
// change of a decision has a generation: a watch that is open asks [State.Changes] for the
// Services whose objects it has to send again.
//
// # What a version is good for
//
// A client that resumes a watch names the version up to which it has read. A State keeps the
// version of the object that caused each change, so it knows whether that client may have read
// an older decision: see [State.Stale].
//
// # Concurrency
//
// A State is safe for concurrent use. Nothing blocks but [State.Await].
package topology
