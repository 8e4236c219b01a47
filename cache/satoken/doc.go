// Package satoken stores the service account tokens that a node was issued, so that its pods
// can start while the cloud is away.
//
// A restarted kubelet requests a token for each pod again, and without one a pod with the
// usual projected volume does not start. The answer is the token that the apiserver last
// issued for that pod: to the same user, for the same service account and audiences, bound
// to the same object (by UID), with the same precondition. The requested lifetime is
// ignored: there is only this token. Tokens are never made here.
//
// # Expired tokens
//
// Expired tokens are given, too, with the expiry that was reported. A kubelet writes what it
// gets into the volume, and soon requests another one. While the cloud is away, only the
// pod's neighbours on the node see such a token; it is renewed when the cloud is back. The
// usual tokens are valid longer than reported (the apiserver extends them to a year).
//
// # On disk
//
// Tokens survive a restart of the hub: otherwise pods would stay down after a reboot. They
// are stored in the cache's file, which only its owner can read, and encrypted if that has
// a key; their keys are hashes. Whoever can read the file can also read the kubelet's volumes.
//
// Tokens that were not requested for 400 days are deleted. The node's tokens are bounded by
// 2,000 and 16 MiB, and are not evicted for others'. The tokens of all other users have the
// same bounds together; beyond these, the tenant that was issued the most loses tokens first;
// see package quota. Logs and errors never contain tokens.
//
// # Life cycle
//
// Open reads what is stored, Keep is called online, Answer offline. A Tokens is safe for
// concurrent use.
package satoken
