// Package checks runs the checks of the node's owner: programs that find out whether the node does what it is there for, such as
// whether a device answers. An upgrade in place has to pass them (package ota/inplace); edgehubctl check runs them, too.
//
// # Who owns what
//
// The owner owns /etc/edgehub/check: programs in required.d must pass, those in wanted.d may fail, which is reported. Whoever can write
// one is root on this node, so that only root may. Anything else in these folders is refused by its name, and a refused one of
// required.d has failed: one that is left out would be a check that nobody misses.
//
// systemd owns the processes. The hub's sandbox has no devices, few capabilities and 512 MiB, and a check that needs more than that
// must not have the hub killed. So each check is a transient service of its own, outside of the hub's control group and sandbox,
// with limits (unit.go), and nothing of it is left when it has ended. The hub may ask for that: it is root, without capabilities, and
// systemd's own socket asks for no more. systemd-run --wait and --pipe would need D-Bus as well. Starting a service of type oneshot
// does not: it takes until the service has ended, whose output goes into a FIFO that this package reads.
//
// The name of the service is that of the check, so that systemd itself keeps one check from running twice at a time. The second
// one waits.
//
// # Data flow
//
// POST upgrade, offline: [Runner.Possible] has systemd start such a service for a program that does nothing. If that fails, or a
// required check is refused, the upgrade waits for the cloud: nothing has begun that would have to be undone. A node without checks
// needs no systemd. Once the pod was Ready for long enough, [Runner.Run] runs the required checks and then the wanted ones, in the
// order of their names, one at a time, each with the pod in its environment. The first required one that does not pass ends it, and
// undoes the upgrade.
//
// # Power cuts, and a hub that dies
//
// This package keeps nothing. Before, between and within checks, the record on disk says that the upgrade is on probation: the next
// hub waits until the pod was Ready for long enough again, and runs all of them. A check that the hub left behind ends by its limit,
// and is waited for. The same holds after the last check and before its outcome is on disk, so checks must bear to run twice. If one
// brings the machine down, the third boot undoes the upgrade. A machine that is shut down kills its checks, which is no result.
package checks
