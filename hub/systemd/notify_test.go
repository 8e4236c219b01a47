package systemd

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// listenAsSystemd returns the socket on which systemd receives notifications.
func listenAsSystemd(t *testing.T) (*net.UnixConn, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn, path
}

// heard returns what has come.
func heard(t *testing.T, conn *net.UnixConn) (all []string) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Read(func(fd uintptr) bool {
		for buffer := make([]byte, 1024); ; {
			n, _, err := syscall.Recvfrom(int(fd), buffer, syscall.MSG_DONTWAIT)
			if err != nil {
				return true
			}
			all = append(all, string(buffer[:n]))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestTheWatchdogIsFedOnlyByAHubThatAnswers(t *testing.T) {
	conn, path := listenAsSystemd(t)
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "9000000")
	synctest.Test(t, func(t *testing.T) {
		var fails atomic.Bool
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- NewNotifier(slog.New(slog.DiscardHandler)).Run(ctx, func() string { return "online" }, func(context.Context) error {
				if fails.Load() {
					return errors.New("the hub does not answer")
				}
				return nil
			})
		}()
		for _, want := range [][]string{{"STATUS=online", "WATCHDOG=1"}, {"WATCHDOG=1"}} {
			synctest.Wait()
			if got := heard(t, conn); !slices.Equal(got, want) {
				t.Errorf("systemd heard %q, want %q", got, want)
			}
			time.Sleep(3 * time.Second) //nolint:forbidigo // of synctest's clock
		}
		synctest.Wait()
		heard(t, conn)
		fails.Store(true)
		time.Sleep(time.Minute) //nolint:forbidigo // of synctest's clock
		synctest.Wait()
		if got := heard(t, conn); len(got) > 0 {
			t.Errorf("a hub that does not answer said %q", got)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestNothingIsSentWithoutSystemd(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	s := NewNotifier(slog.New(slog.DiscardHandler))
	s.Notify("READY=1")
	if err := s.Run(t.Context(), nil, nil); err != nil {
		t.Error(err)
	}
}

func TestSocketsOfSystemdAreTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	all := Listeners{address: l}
	got, err := all.Take(address)
	if err != nil || got != l || len(all) != 0 {
		t.Errorf("%v, %v, %v left", got, err, all)
	}
	l.Close()
	if other, err := (Listeners)(nil).Take("127.0.0.1:0"); err != nil {
		t.Error(err)
	} else {
		other.Close()
	}
}

func TestConnectionsToUnusedSocketsAreClosed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	all := Listeners{l.Addr().String(): l}
	all.Reject(slog.New(slog.NewTextHandler(&log, nil)))
	defer all.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the connection is not closed: %v", err)
	}
	if !strings.Contains(log.String(), "edgehub install") {
		t.Errorf("the log does not say what to do: %s", log.String())
	}
}
