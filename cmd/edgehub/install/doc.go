// Package install switches a kubeadm node to a hub: its kubelet talks to the hub from then on.
// It also upgrades the hub, and uninstalls it.
//
// None of kubeadm's files is changed. What is written:
//
//	/usr/local/bin/edgehub                                this very program
//	/etc/systemd/system/edgehub.service, edgehub.socket   and the links that enable them
//	/etc/edgehub/edgehub.env                              further flags; the admin's
//	/etc/kubernetes/edgehub-kubelet.conf                  kubelet's kubeconfig for the hub
//	/etc/systemd/system/kubelet.service.d/20-edgehub.conf has kubelet take it
//	/var/lib/edgehub-install                              what was there before
//
// # Commit and rollback
//
// [Install] first checks everything that it needs (checks.go), and prints what it will write
// and run (plan.go). Before it changes the first file, it backs up what is there and records
// the change on disk (record.go). When a step fails, or the program is stopped, everything is
// rolled back, to an earlier version of the hub if there was one (rollback.go). When it is
// killed, or the power fails, the next install or uninstall finds the record and rolls back.
// The commit point is writing a record without a change in progress.
//
// A lock on the record's folder allows one change at a time.
package install
