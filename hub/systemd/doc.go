// Package systemd is the hub's side of systemd: readiness, status and watchdog
// (sd_notify(3)), and sockets that systemd holds open across restarts (sd_listen_fds(3)).
//
// Both read the process's environment and remove from it what they have read, so that no
// child process takes it for its own. Without systemd, a [Notifier] does nothing and
// [InheritListeners] returns none.
package systemd
