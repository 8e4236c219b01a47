// Package install switches a kubeadm node to a hub: kubelet then uses the hub as its apiserver. It
// also upgrades and uninstalls the hub.
//
// It changes none of kubeadm's files. It writes:
//
//	/usr/local/bin/edgehub                                this very program
//	/etc/systemd/system/edgehub.service, edgehub.socket   and the links that enable them
//	/etc/systemd/network/00-edgehub.network               systemd-networkd leaves the dummy interface alone, and
//	/etc/NetworkManager/conf.d/00-edgehub.conf            so does NetworkManager, where there is one
//	/etc/edgehub/edgehub.env                              the administrator's flags
//	/etc/kubernetes/edgehub-kubelet.conf                  kubelet's kubeconfig for the hub
//	/etc/systemd/system/kubelet.service.d/20-edgehub.conf makes kubelet use it, by
//	/etc/edgehub/kubelet.env                              which is gone while kubelet joins a cluster (rejoin.go)
//	/etc/systemd/system/edgehub-rejoin.service            has kubelet use it again after that
//	/var/lib/edgehub-install                              the record, and backups
//
// # Commit and rollback
//
// [Install] checks everything that it needs (checks.go), and prints what it will write and run
// (plan.go). Before it changes the first file, it backs up the present files and records the
// change on disk (record.go). If a step fails, or the program is stopped, it rolls back to the
// backups (rollback.go), which may contain an earlier version of the hub. If it is killed, or
// the power fails, the next install or uninstall finds the record and rolls back. The steps have
// no undo of their own, since one restore of all files can be repeated after a crash at any
// point. The commit point is writing a record without a change in progress.
//
// A lock on the record's folder allows one change at a time.
package install
