// Package identity determines the users of bearer tokens. It trusts only an apiserver's
// review: the claims of a token can be forged, and an answer of 200 proves little, because
// anonymous clients get it, too.
//
// # How a token becomes known
//
// A token that the hub has not seen before is reviewed once: after an apiserver has
// answered the first request that carries it, and before anything of the answer is cached.
// Reviews are queued fairly by peer, so that a peer that sends many new tokens delays only
// its own. The review is a SelfSubjectReview with this token and no other credentials, or,
// where users may not create those, a TokenReview as the node. Its result, a user name and
// UID, is stored with a salted hash of the token; the token itself is in memory only. A token
// that an apiserver has just issued through the hub is known from that answer, before its
// first use.
//
// While the cloud is away, a known token identifies its user; any other identifies nobody.
//
// # How a token is forgotten
//
// If an apiserver answers 401 to a known token, a review confirms that it is refused: a
// kubelet or an aggregated apiserver behind that apiserver may also answer 401. While the cloud
// is there, [Tokens.Confirm] has known tokens reviewed again, and forgets those that
// are refused or could not be reviewed for long; see quota.Turns. Of more than
// maxTokens, those go that package quota selects.
//
// # Concurrency
//
// [Tokens] is safe for concurrent use. Concurrent requests with one token share one review.
package identity
