// Package review answers what a kubelet asks before it serves its own API (logs, exec,
// metrics): whose a bearer token is (TokenReview), and what that user may do
// (SubjectAccessReview). Without answers, nobody can read a pod's logs while the cloud is away.
//
// # What is answered
//
// A positive answer of an apiserver (authenticated, allowed) is stored, and repeated to the
// same question: the same token and audiences, or the same SubjectAccessReviewSpec. It is
// valid for a limited time after the apiserver last gave it. A negative answer deletes the
// stored one, and all that is stored of a token is deleted when an apiserver refuses the token. A token is nobody's from the time at which its holder may not read any more: its
// expiry, and --offline-token-grace after that.
//
// The answer to any other question is no: the token is not authenticated, access is not
// allowed, with the reason. An error would be as safe, but kubelet's webhook retries for a
// minute after one, and each request to the kubelet would hang as long.
//
// The package answers any caller: its user must make sure that this is the node.
//
// # Time
//
// A device may start with a clock that is wrong by years, and set it later. So the age of
// answers is measured with a clock that never goes back, also across restarts: it follows
// the device's clock, and goes on by itself where that was set back. Setting the clock
// back extends nothing; setting it forward expires stored answers. Time while the device was
// off counts as far as its clock has advanced.
//
// # On disk
//
// Answers are stored in the cache's file, and encrypted if that has a key. Tokens are not
// stored: keys are salted hashes. Beyond 1,000 answers or 4 MiB, the tenant whose users were
// reviewed most loses answers first; see package quota.
//
// # Life cycle
//
// Open reads the stored answers, Keep is called online, Answer offline. While the cloud is
// there, Confirm asks the questions again, which are in memory only. A Reviews is safe
// for concurrent use.
package review
