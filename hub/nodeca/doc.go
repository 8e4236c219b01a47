// Package nodeca is the certificate authority of one node's hub. It signs the certificate with
// which the hub serves pods, and nothing else.
//
// Pods of the node trust it, next to the cluster's CA: package proxy/transform appends its
// certificate to kube-root-ca.crt, and to other copies of the cluster's CA, as the node's kubelet reads them. The cluster's CA signs no
// certificate for kubernetes.default.svc on a node, so what is stolen from a node deceives no
// pod of another one. Constraints in the CA's own certificate limit what it may sign for: the names
// of this hub, and servers only. So nobody who takes ca.crt for a CA of clients lets in whoever has
// stolen the key. Clients that enforce them, Go's and OpenSSL's among them, check every certificate of a chain.
// They are not critical, though RFC 5280 wants that: a client that does not know them, such as one with
// Mbed TLS, would refuse the CA. For such a client, and for those that do not look at them in a CA that they trust (Java), a stolen key signs for any name.
//
// # Rotation
//
// Most pods read the CAs that they trust once, when they start. So a new CA is signed by the
// one before it, and the hub sends that signature with its certificate: a pod that knows only
// an older CA trusts the new one through it, and no pod notices a rotation. If a key was stolen,
// that is not wanted: remove the file, restart the hub and kubelet, and then the node's pods.
//
// So the path length of a CA cannot be 0: Go counts each newer CA, and a pod would trust none of
// them. It is the number of rotations that a pod outlives. A thief gains nothing by a CA below the
// stolen one, which is bound by the same constraints.
//
// A CA is one file, which is replaced as a whole, under a lock on its folder. CAs and
// certificates do not expire, because the clock of a node may be wrong: see package servertls.
// The hub rotates its CA by age instead.
package nodeca
