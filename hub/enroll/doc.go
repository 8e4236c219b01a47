// Package enroll obtains a client certificate for the hub, like TLS bootstrapping of the kubelet,
// and renews it.
//
// The certificate is for system:node:NAME in the group system:nodes, so that the apiserver's node
// authorizer limits its permissions. The hub requests it by a CertificateSigningRequest for the
// signer kubernetes.io/kube-apiserver-client-kubelet:
//
//   - with the credentials in the bootstrap file, the first time, and again if the apiserver
//     refuses the certificate, for example because it has expired;
//   - with the certificate itself after 70 to 90 % of its life, or as soon as the cloud is back.
//
// An approver must approve it: in a kubeadm cluster the controller manager.
//
// # On disk
//
//	hub.kubeconfig       certificate, key, and the apiservers' CA, in one file.
//	                     Its replacement is the commit point of a renewal.
//	hub.key.pending      the key of a requested certificate. It is written before the
//	                     request, whose name derives from it: after a crash the hub
//	                     finds its request again.
//	hub.kubeconfig.damaged, hub.key.pending.damaged
//	                     unreadable files, which were moved aside
//
// The bootstrap file is read whenever it is needed, and may be replaced while the hub
// runs. It may be removed once there is a certificate; then a certificate that expires
// during an outage needs a new one.
//
// # Life cycle
//
// [Open] reads the files, [New] sends no requests, [Enrollment.Run] does, and blocks until its
// context ends. An Enrollment is safe for concurrent use.
package enroll
