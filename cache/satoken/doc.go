// Package satoken keeps the service account tokens that a node has been issued, so that
// its pods can start while the cloud is away.
//
// A kubelet that has been restarted asks for the token of each pod anew, and without one
// a pod with the usual projected volume stays down. So the answer is the one that the
// apiserver gave for that pod last: to the same user, for the same service account and
// audiences, bound to the same object (by UID), and with the same precondition. The
// lifetime asked for does not matter: there is no choice. No token is ever made here.
//
// # Tokens that have expired
//
// They are given all the same, with the expiry that was reported. A kubelet puts what it
// gets into the volume and asks again soon. While the cloud is away nobody but the pod's
// neighbours on the node sees such a token; it is renewed when the cloud is back. Usual
// ones expire long after the reported time (the apiserver extends them to a year).
//
// # On disk
//
// Tokens survive a restart of the hub, or a reboot would leave the pods down. They lie in
// the cache's file, which only its owner can read, and sealed if it has an encryption
// key; keys are hashes. Who can read the file could read the kubelet's volumes as well.
// Tokens of pods that nobody asked about for 400 days are forgotten. Those of the
// node are bounded by 2,000 and 16 MiB, and lose to nobody else's. All others together are
// bounded by as much; beyond it the tenant to which the most were issued loses first; see
// package quota. Logs and errors never contain tokens.
//
// # Life cycle
//
// Open reads when tokens were last used. Keep is called online, Answer offline. A Tokens
// is safe for concurrent use.
package satoken
