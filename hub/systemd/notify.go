package systemd

import (
	"context"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"
)

// Notifier sends the hub's state to systemd, if systemd has started this process. systemd starts
// kubelet after READY=1, shows the STATUS line, and restarts the hub when watchdog notifications
// stop.
type Notifier struct {
	socket   string        // of systemd; empty: systemd has not started this process
	watchdog time.Duration // without a notification for so long, systemd restarts the hub; 0: never
	log      *slog.Logger
}

// NewNotifier returns a Notifier that is configured by systemd's variables.
func NewNotifier(log *slog.Logger) *Notifier {
	n := &Notifier{socket: os.Getenv("NOTIFY_SOCKET"), log: log}
	if pid := os.Getenv("WATCHDOG_PID"); pid == "" || pid == strconv.Itoa(os.Getpid()) {
		if usec, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64); err == nil && usec > 0 {
			n.watchdog = time.Duration(usec) * time.Microsecond
		}
	}
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"} {
		_ = os.Unsetenv(name)
	}
	return n
}

// Notify sends a state such as READY=1. It only logs a failure: systemd acts when notifications are
// missing.
func (n *Notifier) Notify(state string) {
	if n.socket == "" {
		return
	}
	// For package net, too, a name that begins with @ is in the abstract namespace.
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err == nil {
		defer conn.Close()
		_, err = conn.Write([]byte(state))
	}
	if err != nil {
		n.log.Warn("systemd cannot be told how the hub is doing", "state", state, "err", err)
	}
}

// statusInterval is the interval of updates of the STATUS line.
const statusInterval = time.Second

// Run updates the STATUS line and the watchdog until ctx ends. It calls alive before each
// watchdog notification, and sends none while alive fails.
func (n *Notifier) Run(ctx context.Context, status func() string, alive func(context.Context) error) error {
	if n.socket == "" {
		return nil
	}
	tick := time.NewTicker(statusInterval)
	defer tick.Stop()
	var lastStatus string
	var lastFed time.Time
	for {
		if now := status(); now != lastStatus {
			n.Notify("STATUS=" + now)
			lastStatus = now
		}
		if n.watchdog > 0 && time.Since(lastFed) >= n.watchdog/3 {
			n.feedWatchdog(ctx, alive)
			lastFed = time.Now()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// feedWatchdog notifies the watchdog if the hub is alive. It limits the time of alive so that another
// attempt is possible.
func (n *Notifier) feedWatchdog(ctx context.Context, alive func(context.Context) error) {
	attempt, cancel := context.WithTimeout(ctx, n.watchdog/4)
	defer cancel()
	err := alive(attempt)
	switch {
	case err == nil:
		n.Notify("WATCHDOG=1")
	case ctx.Err() == nil:
		n.log.Error("the hub does not answer on its own port; systemd starts it anew if that goes on", "err", err, "watchdog", n.watchdog)
	}
}
