package systemd

import (
	"context"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"
)

// Notifier is systemd, if it has started this process: it waits for READY=1
// before kubelet starts, shows the STATUS line, and starts the hub anew when the
// signs of life stop (sd_notify(3)).
type Notifier struct {
	socket   string        // of systemd; empty: nobody listens
	watchdog time.Duration // silence after which it kills the hub; 0: never
	log      *slog.Logger
}

// NewNotifier reads what systemd has put into the environment, and takes it
// out of it: no child is to speak for the hub.
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

// Notify sends a state such as READY=1. That it does not arrive stops nothing:
// systemd draws its own conclusions from silence.
func (n *Notifier) Notify(state string) {
	if n.socket == "" {
		return
	}
	// A name that begins with @ is one in the abstract namespace, to net as well.
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err == nil {
		defer conn.Close()
		_, err = conn.Write([]byte(state))
	}
	if err != nil {
		n.log.Warn("systemd cannot be told how the hub is doing", "state", state, "err", err)
	}
}

// statusInterval is how soon the STATUS line follows what it tells of.
const statusInterval = time.Second

// Run keeps the STATUS line and the watchdog current until ctx ends. alive is
// asked before each sign of life; while it fails there is none.
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

// feedWatchdog asks alive for no longer than leaves time for another attempt.
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
