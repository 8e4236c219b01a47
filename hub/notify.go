package hub

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"
)

// supervisor is systemd, if it has started this process: it waits for READY=1
// before kubelet starts, shows the STATUS line, and starts the hub anew when the
// signs of life stop (sd_notify(3)).
type supervisor struct {
	socket   string        // of systemd; empty: nobody listens
	watchdog time.Duration // silence after which it kills the hub; 0: never
	log      *slog.Logger
}

// newSupervisor reads what systemd has put into the environment, and takes it
// out of it: no child is to speak for the hub.
func newSupervisor(log *slog.Logger) *supervisor {
	s := &supervisor{socket: os.Getenv("NOTIFY_SOCKET"), log: log}
	if pid := os.Getenv("WATCHDOG_PID"); pid == "" || pid == strconv.Itoa(os.Getpid()) {
		if usec, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64); err == nil && usec > 0 {
			s.watchdog = time.Duration(usec) * time.Microsecond
		}
	}
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"} {
		_ = os.Unsetenv(name)
	}
	return s
}

// tell sends a state such as READY=1. That it does not arrive stops nothing:
// systemd draws its own conclusions from silence.
func (s *supervisor) tell(state string) {
	if s.socket == "" {
		return
	}
	// A name that begins with @ is one in the abstract namespace, to net as well.
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: s.socket, Net: "unixgram"})
	if err == nil {
		defer conn.Close()
		_, err = conn.Write([]byte(state))
	}
	if err != nil {
		s.log.Warn("systemd cannot be told how the hub is doing", "state", state, "err", err)
	}
}

// statusInterval is how soon the STATUS line follows what it tells of.
const statusInterval = time.Second

// run keeps the STATUS line and the watchdog current until ctx ends. alive is
// asked before each sign of life; while it fails there is none.
func (s *supervisor) run(ctx context.Context, status func() string, alive func(context.Context) error) error {
	if s.socket == "" {
		return nil
	}
	tick := time.NewTicker(statusInterval)
	defer tick.Stop()
	var told string
	var lastSign time.Time
	for {
		if now := status(); now != told {
			s.tell("STATUS=" + now)
			told = now
		}
		if s.watchdog > 0 && time.Since(lastSign) >= s.watchdog/3 {
			s.signOfLife(ctx, alive)
			lastSign = time.Now()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// signOfLife asks alive for no longer than leaves time for another attempt.
func (s *supervisor) signOfLife(ctx context.Context, alive func(context.Context) error) {
	attempt, cancel := context.WithTimeout(ctx, s.watchdog/4)
	defer cancel()
	err := alive(attempt)
	switch {
	case err == nil:
		s.tell("WATCHDOG=1")
	case ctx.Err() == nil:
		s.log.Error("the hub does not answer on its own port; systemd starts it anew if that goes on", "err", err, "watchdog", s.watchdog)
	}
}

// alive asks the hub's API for its health, as a program on the node would: what
// answers has accepted a connection and run a handler. Over TLS nobody without a
// certificate is let in, and any answer will do.
func (h *Hub) alive(ctx context.Context) error {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // it asks whether this very process answers, and tells it nothing
	}}
	scheme, secure := "http", h.config.ServeClientCAFile != ""
	if secure {
		scheme = "https"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+h.config.ServeAddress+"/v1/healthz", http.NoBody)
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		if ctx.Err() == nil && h.isFull("--serve-port") {
			return nil // it was turned away, by a hub that lives; another start would cut kubelet off for no gain
		}
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK && !secure {
		return fmt.Errorf("%s answers %s", req.URL, res.Status)
	}
	return nil
}

// isFull tells whether the port of this flag has as many connections as are for everybody.
func (h *Hub) isFull(flag string) bool {
	for _, p := range h.ports {
		if l, ok := p.listener.(*limited); ok && p.name == flag {
			return l.open.Load() >= l.free
		}
	}
	return false
}

// status is one line for `systemctl status`.
func (h *Hub) status() string {
	if offline := h.offline(); offline != "" {
		return offline
	}
	return "online"
}
