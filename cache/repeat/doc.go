// Package repeat repeats while the cloud is away what an apiserver has answered last to a question that
// is not about objects: each kind of question has a policy.
//
// # What the policies have in common
//
// An answer is stored by what the question means, not by its bytes: the key is a salted hash of the user
// and of all that decides the answer. So parameters that apiservers ignore make no second entry. In
// memory are the keys and what identifies an answer; the body is read from disk when it is needed. An
// answer that stays the same is not written again until its time of last use is off by too much.
//
// Beyond its policy's bounds, the tenant with the most answers loses the least recently used first; see
// package quota. "Recently" and all ages are by a clock that never goes back, also across restarts: it
// follows the device's clock, and goes on by itself where that was set back. So a device that boots
// with the time of 1970 neither evicts what it has just read, nor extends anything. Setting the clock
// forward makes stored answers older. Time while the device was off counts as far as its clock has
// advanced.
//
// # Paths
//
// Clients read an apiserver's version, its discovery and its schemas when they start, kubectl before each
// command, and cannot work without them. Answers are stored as they came, by user, path and Accept
// header, and by the hash in a schema's URL. A client with another Accept header gets what the same user
// has read with a different one, if it accepts that media type.
//
// kubectl caches discovery itself, and asks whether it has changed. The apiserver's 304 has the current
// ETag, but no content. Offline, a client with that ETag gets 304 again, and a client without it gets the
// content that was read last, if any. What was not read is unknown.
//
// # Tokens of service accounts
//
// A restarted kubelet requests a token for each pod again, and without one a pod with the usual projected
// volume does not start. The answer is the token that the apiserver last issued for that pod: to the same
// user, for the same service account and audiences, bound to the same object (by UID), with the same
// precondition. The requested lifetime is ignored: there is only this token. Tokens are never made here,
// and where none was issued there is none.
//
// Expired tokens are given, too, with the expiry that was reported. A kubelet writes what it gets into the
// volume, and soon requests another one. While the cloud is away, only the pod's neighbours on the node see
// such a token; it is renewed when the cloud is back. The usual tokens are valid longer than reported (the
// apiserver extends them to a year).
//
// Tokens survive a restart of the hub: otherwise pods would stay down after a reboot. They are values in
// the cache's file, which only its owner can read, and encrypted if that has a key. Whoever can read the
// file can also read the kubelet's volumes. Logs and errors never contain tokens.
//
// # Reviews
//
// Before a kubelet serves its own API (logs, exec, metrics), it asks whose a bearer token is (TokenReview),
// and what that user may do (SubjectAccessReview). Without answers, nobody can read a pod's logs while the
// cloud is away.
//
// A positive answer of an apiserver (authenticated, allowed) is stored, and repeated to the same question of
// the node: the same token and audiences, or the same SubjectAccessReviewSpec. It is valid for a limited
// time after the apiserver last gave it. A negative answer deletes the stored one, and all that is stored of
// a token is deleted when an apiserver refuses the token. A token is nobody's from the time at which its
// holder may not read any more: its expiry, and --offline-token-grace after that. Tokens are not stored: of
// one there is a salted hash, and the question itself is in memory only.
//
// The answer to any other question is no: the token is not authenticated, access is not allowed, with the
// reason. An error would be as safe, but kubelet's webhook retries for a minute after one, and each request
// to the kubelet would hang as long.
//
// # What is asked for again
//
// While the cloud is there, Confirm asks for what was answered last, so that what was revoked there does not
// outlive a loss: whose a bearer token is (package identity), which reviews of the node were allowed, and what users
// may read (package view). An apiserver that cannot answer revokes nothing: only its refusal
// does.
//
// # Life cycle
//
// Load reads the stored answers, Keep is called online, Answer offline, Confirm while
// the cloud is there. Answers is safe for concurrent use.
package repeat
