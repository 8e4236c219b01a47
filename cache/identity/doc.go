// Package identity tells who the callers are that send a bearer token: what an
// apiserver says, and nothing else. A caller can write anything into a token that
// it makes itself, and an answer of 200 says little, since anonymous callers get
// it too.
//
// # How a token becomes known
//
// A token that the hub has not seen before is reviewed once: after an apiserver
// has answered the first request that carries it, and before anything of the
// answer is kept. Peers take turns with their tokens, so that who sends many new ones
// waits for its own. The review is a SelfSubjectReview with this token and no other
// credentials, or, where callers may not create those, a TokenReview as the
// node. What the review answers, a user name and UID, is stored with a salted
// hash of the token; the token itself never is. A token that an apiserver has
// just issued through the hub is known from that answer, before its first use.
//
// While the cloud is away a known token stands for its user, and any other
// for nobody.
//
// # How a token is forgotten
//
// Where an apiserver answers 401 to a known token, a review confirms that it is
// refused: a kubelet or an aggregated apiserver behind the one that was asked may
// also answer 401. A token is forgotten too where its user has too many; see
// maxPerUser.
//
// # Concurrency
//
// [Tokens] is safe for concurrent use. Reviews of one token are one request,
// however many callers wait for it.
package identity
