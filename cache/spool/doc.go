// Package spool stores the Events that clients post while the cloud is away, and sends them
// when it is back. They show afterwards what happened on a node during an outage.
//
// # What a recorder sees
//
// A POST is answered like by an apiserver: 201 and the event, with a name (generated from
// generateName), a UID and a creationTimestamp, but without a resourceVersion, which recorders
// do not use. A second POST of an event by the same caller replaces it, so that a series keeps
// its count. What others post under the same name are events of their own: while the cloud is
// away nobody says who may post where, so nobody stands in another one's way.
//
// A PATCH or PUT of an event that the caller has in the spool is merged into it:
// 200. For other events, which are in the cloud or unknown, it gets 404, although that is not
// proven. To the recorders of client-go, 404 means that the event has expired, as any event
// may; they post the whole event again, with its current count. With 503 they would give up
// after some retries, and the event would be lost. If the cloud still has an event of that
// name when it is sent, that one is not changed; the next PATCH of the series corrects its
// count.
//
// # Credentials
//
// Events of the node are sent as the node, also after a restart of the hub. Events of a caller
// with a bearer token are sent with that token, which is kept in memory only. After a restart
// they cannot be sent: Load drops them, and reports their number in a log line and a metric.
//
// # Delivery
//
// Events are sent one after the other, oldest first. Each has its name before it is sent, so a
// repeated POST gets 409, which counts as sent.
// An event is sent twice only if it was deleted in the cloud in between. It is lost if the hub
// is killed within about a second after accepting it (see package log), if the spool is full (the
// tenant that holds the most gets 503, and loses its oldest events to others: see package
// quota), or if an apiserver does not take it.
//
// What an apiserver refuses for good, by 4xx, is set aside: a line in the log names the event, its object and
// the reason, and a metric counts it. An apiserver that answers 5xx may fail at one event (etcd does not take it, a
// webhook fails at it) or at all of them, and the answer does not tell. So the event goes behind all others, and is
// set aside when that has happened several times.
// 503, 429 and 408, and errors of the connection, are never the event's.
//
// # Life cycle
//
// Load reads the spooled events; Add accepts events while the cloud is away; Replay sends them
// when it is back, until none is left. If the file is opened late, what Load reads needs another
// Replay. A Spool is safe for concurrent use.
package spool
