// Package offline answers reads while the cloud is away: GET and LIST, and the pieces that
// initial events of a watch are made of.
//
// For each entry of the Accept header in turn, the view answers that holds just what is asked
// for, or else the newest from which that can be converted; see [Request.Source]. A GET is
// answered with the newest copy that the user has seen, from whichever view, or not at all.
// The node's own status is laid over what is cached; see package overlay, and [Answers.Place]
// for where it belongs.
//
// A body is made piece by piece, as its client reads on, and users take turns. So what nobody
// reads costs no more than the piece that waits. Damage that shows in the middle breaks a body
// off: none is short and whole at once.
//
// [Answers] is safe for concurrent use. A body, and [Pieces], are for one goroutine at a time;
// they have to be closed.
package offline
