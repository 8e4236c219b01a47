// Package machine boots a machine for a test: a real systemd as process 1 of namespaces
// of its own, with a network, control groups, devices and a file system of its own.
//
// The file system is what the host has, seen through an overlay whose upper part is in
// memory: what is written goes with the machine, and nothing of the host's is ever
// changed, its /tmp, /run, /var and settings of the kernel included. Of systemd's own
// units only the journal's are there.
//
// The kernel ends the machine with its first process, and that with the test. It takes
// root and a systemd that is installed; Missing returns what there is not.
package machine
