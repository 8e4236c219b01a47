// Package enroll gets the hub a client certificate of its own, as kubelet gets one by
// TLS bootstrapping, and keeps it good.
//
// The certificate says system:node:NAME in the group system:nodes, so that the
// apiserver's node authorizer bounds what it is good for. It is asked for with a
// CertificateSigningRequest for the signer kubernetes.io/kube-apiserver-client-kubelet:
//
//   - with the credentials in the bootstrap file, the first time, and again where the
//     apiserver refuses the certificate, as it does one that has expired;
//   - with the certificate itself when 70 to 90 % of its life have passed. Where the cloud
//     is away at that time, as soon as it is back.
//
// An approver has to say yes, in a cluster of kubeadm's the controller manager.
//
// # On disk
//
//	hub.kubeconfig       certificate, key, and which apiservers to trust, in one file.
//	                     Its replacement is the commit point of a renewal.
//	hub.key.pending      the key of a certificate that has been asked for. It is there
//	                     before the request is, and the request is named for it: after
//	                     a crash the hub finds its request, and what came of it.
//	hub.kubeconfig.damaged, hub.key.pending.damaged
//	                     what could not be read; the hub begins anew
//
// The bootstrap file is read whenever it is needed, and may be replaced while the hub
// runs. It may be removed once there is a certificate; then a certificate that expires
// during an outage needs a new one.
//
// # Life cycle
//
// [Open] reads what is on disk, [New] asks nobody, [Enrollment.Run] does, and blocks until
// its context ends. An Enrollment is safe for concurrent use.
package enroll
