// Package enroll obtains and renews a client certificate for the hub, as TLS bootstrapping does for
// kubelet.
//
// The certificate is for system:node:NAME in the group system:nodes, so that the apiserver's node
// authorizer limits its permissions. The hub requests it by a CertificateSigningRequest for the
// signer kubernetes.io/kube-apiserver-client-kubelet:
//
//   - the first time with the credentials in the bootstrap file, and again if the apiserver
//     refuses the certificate, for example because it has expired;
//   - after 70 to 90 % of the certificate's life with the certificate itself, or as soon as the
//     cloud is back.
//
// An approver must approve it: in a kubeadm cluster the controller manager.
//
// # On disk
//
//	hub.kubeconfig       certificate, key, and the apiservers' CA, in one file.
//	                     Its replacement is the commit point of a renewal.
//	hub.key.pending      the key of a requested certificate, written before the request.
//	                     The request's name derives from the key, so that the hub finds
//	                     the request again after a crash.
//	hub.kubeconfig.damaged, hub.key.pending.damaged
//	                     files whose contents could not be read
//
// The bootstrap file is read whenever it is needed, and may be replaced while the hub runs.
// It may be removed once there is a certificate; it is needed again if the certificate
// expires during an outage.
//
// # Why not client-go's util/certificate
//
// Its manager takes the node's clock for the cluster's: two days ahead it asks once a second, two days behind it lets the certificate
// expire (TestANodeWithAWrongClock). Its key is in memory until there is a certificate, so that a restart, or an approver who takes longer
// than a quarter of an hour, makes another request (TestAfterACrash, TestARequestThatWaitsForApproval). It has no way back to the bootstrap
// file from a certificate that the apiserver refuses before it expires. And both it and util/certificate/csr take a clientset of all API
// groups, which is 10 MB of binary.
//
// # Life cycle
//
// [Open] reads the files, [New] sends no requests, and [Enrollment.Run] sends them until its
// context ends. An Enrollment is safe for concurrent use.
package enroll
