// Package watch keeps the watches of clients open while the cloud is away.
//
// The body of a watch is a stream, whose states are ended, replaying, waiting and relaying; see
// state. While an apiserver answers, the stream applies its events to the view and relays
// them: relay.go and event.go. When upstream is lost, the stream waits, and its client gets
// a bookmark every minute. After the return of the cloud it resumes, at a random time within the
// jitter, at most eight streams at once: resume.go. The first one asks for the apiservers' version before: if their store
// was restored from a backup, they would hold a watch above that version open without events: checks.go. If
// an apiserver has forgotten the client's version, the client gets 410 and lists; if it has forgotten that of the view, the
// view is lost. A watch that is opened while the
// cloud is away starts waiting, or, if it requests initial events, replaying: offline.go.
//
// A stream is opened at the version of its client, or of its view, if this is lower: then the view gets all events, and
// the client those above its own version. It is opened anew whenever the view has come to be below what the stream has
// shown, and its client gets 410 if the view is lost: follow.go. What a view takes, package view decides.
//
// Waiting watches show what the node changes while the cloud is away, and revert it after the
// cloud is back: shown.go. Package derived has the rules.
//
// Of a watch over WebSocket a stream only applies the events; the connection is relayed as it is, and
// ends with the cloud: socket.go.
//
// [Watches] is safe for concurrent use. Like any body, a stream is for one goroutine; it has
// no lock, and is called under none but a socket's.
package watch
