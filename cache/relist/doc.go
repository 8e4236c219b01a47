// Package relist lists views again where events cannot update them: when a view's watches are
// ahead of it, when its changes could not be written, and when an apiserver has forgotten the
// version from which a watch resumes. It also computes the events that replace the list.
//
// # A relist
//
// A view is listed once for all watches that need it. The first one starts a request in the
// background, with the credentials of a client that may read the view; the others wait for
// the same [Call]. Events that arrive meanwhile are buffered in the view. The difference
// between the old and the new state becomes events for watches whose version the apiservers
// have forgotten: first deletions, at the old version, then the other changes in the order of
// their versions. A view that was evicted, or cannot be cached, is not listed again at once.
//
// Relists also show that etcd was restored from a backup; see restore.go for what follows.
//
// # Concurrency
//
// A [Lister] and [Outages] are safe for concurrent use. The lock of a view's relist state is
// taken after no other lock but that of evictions, and never held during a request.
package relist
