// Package machine boots a machine for a test: a real systemd as process 1 of namespaces
// of its own, with a network, control groups, devices and a file system of its own.
//
// The file system is what the host has, seen through an overlay whose upper part is in
// memory, or on a disk of the machine's own: what is written goes with the machine or its
// disk, and nothing of the host's is ever changed, its /tmp, /run, /var and settings of the
// kernel included. Of systemd's own units only the journal's are there. A machine with a disk
// can lose power, and boot again from what it has written.
//
// Machines may share a bridge, and be cut off from it.
//
// The kernel ends the machine with its first process, and that with the test. It takes
// root and a systemd that is installed; Missing returns what there is not.
package machine
