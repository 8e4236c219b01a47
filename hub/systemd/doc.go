// Package systemd connects the hub to systemd: readiness, status and watchdog (sd_notify(3)),
// and sockets that systemd keeps open across restarts (sd_listen_fds(3)).
//
// Both read variables of the environment and remove them, so that no child process uses them.
// Without systemd, a [Notifier] does nothing and [InheritListeners] returns none.
package systemd
