// Package spool takes the events that are posted while the cloud is away, and sends them
// when it is back. Events are how somebody learns afterwards what happened on a node
// during an outage.
//
// # What a recorder sees
//
// A POST is answered as an apiserver answers it: 201 and the event, with a name (made
// here from generateName), a UID and a creationTimestamp, but without a resourceVersion,
// which a recorder stores and has no use for. An event that is posted twice is 409.
//
// A PATCH or PUT of an event that is in the spool, by whoever posted it, is merged into
// it: 200. Of one that is not, because it is in the cloud or unknown, it is 404, though
// nothing proves that. For the recorders of client-go, 404 means that the event has
// expired, which any event may at any time; they post it anew, whole, with the count it
// has come to. With 503 they would give up after some tries, and the event would be
// lost. When it is sent and the cloud has that name still, the cloud's stays as it is; a
// series that goes on corrects the count with its next PATCH.
//
// # On whose behalf events are sent
//
// Those of the node, as the node, also after a restart of the hub. Those of a caller
// with a bearer token, with that token, which is held in memory only: after a restart
// of the hub they cannot be sent on anybody's behalf any more. Open drops them, and says
// how many in a log line and a metric.
//
// # Exactly once, nearly
//
// An event gets its name before it is sent, so a repeated POST is 409, and done. An event
// may be sent twice only where it was deleted in the cloud in between. It is lost where
// the hub is killed within a second of taking it (see package writeback), where the spool is
// full (who holds the most of it gets 503, and loses its oldest events to others: see
// package quota), and where the apiserver refuses it for good.
//
// # Life cycle
//
// Open reads what is spooled; Add takes events while the cloud is away; Replay sends them
// when it is back, until none is left. A Spool is safe for concurrent use.
package spool
