// Package leftovers ends and removes what test runs have left that were killed, and checks
// whether a machine can run the tests.
//
// Most of what tests start ends with them, by the kernel: processes have a parent-death
// signal, nodes and machines are namespaces with a first process. A run that was killed
// leaves control groups, bridges, mounts and files, and now and then a process. Clean knows
// them by their names, and whether their owner lives by a lock that ends with it:
//
//	control groups edgehub, bridges edgehub*     the lock on the machine, see cluster.ClaimMachine
//	control groups and wires edgehub-NAME        the lock on that machine's name
//	control groups edgehub-callers-PID-*.slice   the process PID
//	mounts of edgehub-test-PID                   the process PID
//	folders edgehub-*, with all that is in them  the lock on .owner, see package tempdir
//	folders of clusters                          the lock on their file "lock"
//	unfinished builds in the cache               the lock on build.lock there
//	processes                                    they run in such a control group, or from
//	                                             such a folder, or work on it
//
// Nothing else is touched, nor what a run owns that lives. Not removed are folders that tests keep
// for people because they have failed: the logs of clusters, and edgehub-crash-*.
package leftovers
