// Package review answers the questions that a kubelet asks before it serves its own API
// (logs, exec, metrics): whose a bearer token is (TokenReview), and what that user may do
// (SubjectAccessReview). Without answers nobody reads a pod's logs while the cloud is away.
//
// # What is answered
//
// An apiserver's answer is remembered if it is positive, authenticated or allowed, and
// given again to the very same question: for a token that is the token and the audiences,
// for access the whole spec, that is the user, UID, groups, extra fields and what is to
// be done. It is given for a limited time after the last such answer of an apiserver. A
// negative answer of an apiserver removes what was remembered.
//
// To all else the answer is no, at once: a token is not authenticated, access is not
// allowed, and why. An error would do as little harm, but kubelet's webhook tries again
// for a minute before it gives up, and each request to the kubelet hangs for as long.
//
// The package answers whoever asks it. It is for its caller to see that this is the node.
//
// # Time
//
// A device may start with a clock that is wrong by years, and set it later. So age is
// measured on a clock of the hub's own, which never goes back, also over restarts: it is
// the device's clock where that is ahead, and goes on by itself where that has been set
// back. Setting the clock back lengthens nothing. Setting it forward ends what is remembered.
// Time during which the device was off counts as far as its clock has gone on.
//
// # On disk
//
// What is remembered survives a restart of the hub, in the cache's file, sealed if that has
// an encryption key. Tokens are not in it: keys are salted hashes. Beyond 1,000 answers or
// 4 MiB the tenant whose users were reviewed most loses first; see package quota.
//
// # Life cycle
//
// Open reads what is remembered, Keep is called online, Answer offline. A Reviews is safe
// for concurrent use.
package review
