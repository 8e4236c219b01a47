// Package watch keeps the watches of clients open while the cloud is away.
//
// The body of a watch is a stream that is ended, replaying, waiting or relaying; see state.
// While an apiserver answers, the stream relays its events, after the view has taken them
// over: relay.go and event.go. When upstream breaks off, the stream waits, and its client gets
// a bookmark a minute: wait.go. After the return of the cloud it is resumed, at a random time
// within the jitter and eight at once, from the version that its client has got to: resume.go.
// Before the first of them, the apiservers are asked at which version they are, because one
// above it would be held open in silence by a store that was restored from a backup. Where an
// apiserver has forgotten the client's version, package relist lists the view once for all its
// watches, and the events that stand for the difference are sent, or else the client is told
// to list again: relist.go. A watch that is opened while the cloud is away begins with waiting,
// or with replaying where it asks for initial events: offline.go and replay.go.
//
// The node's own status, which it reports while the cloud is away, is shown to watches that
// wait, and put right after the cloud is back: held.go.
//
// [Watches] is safe for concurrent use. Like any body, a stream is for one goroutine; it has
// no lock, and is never called under one.
package watch
