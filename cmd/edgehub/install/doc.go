// Package install turns a node over that kubeadm has set up: its kubelet talks to a
// hub from then on. It also upgrades the hub, and puts everything back.
//
// None of kubeadm's files is changed. What is written:
//
//	/usr/local/bin/edgehub                                this very program
//	/etc/systemd/system/edgehub.service, edgehub.socket   and the links that enable them
//	/etc/edgehub/edgehub.env                              further flags; the admin's
//	/etc/kubernetes/edgehub-kubelet.conf                  kubelet's way to the hub
//	/etc/systemd/system/kubelet.service.d/20-edgehub.conf has kubelet take it
//	/var/lib/edgehub-install                              what was there before
//
// # A change and its end
//
// [Install] looks first, at everything that it needs ([files.Read], checks.go), and says
// what it will write and run (plan.go). What is at those paths is kept and noted on
// disk before the first of them is touched (record.go). When a step fails, or the
// program is told to stop, everything is put back as it was, an earlier version of the
// hub included. When it is killed, or the power fails, the next install or uninstall
// finds the note and does the same. The commit point is the record that has no change
// under way any more.
//
// One change at a time: a lock on the record's folder sees to that.
package install
