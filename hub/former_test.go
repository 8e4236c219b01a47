package hub

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edgehub-io/edgehub/cache/durable"
	"github.com/edgehub-io/edgehub/hub/binding"
	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/hub/systemd"
)

// leave writes what a hub of a node keeps, besides its cache.
func (n *node) leave(t *testing.T) {
	t.Helper()
	for name, text := range map[string]string{
		"upgrades/queue/shop_camera.json": `{"uid":"1","state":"WaitingForCloud"}`,
		"upgrades/queue/shop_done.json":   `{"uid":"2","state":"Done"}`,
		"upgrades/hold/shop_till.json":    `{"uid":"3","since":"2026-01-01T00:00:00Z","until":"2999-01-01T00:00:00Z"}`,
		"upgrades/hold/shop_free.json":    `{"uid":"4","since":"2026-01-01T00:00:00Z","until":"2026-01-02T00:00:00Z"}`,
		"web-tokens.json":                 `{}`,
		"pki/hub.kubeconfig":              "of the node",
	} {
		file := filepath.Join(n.config.RootDir, name)
		err := os.MkdirAll(filepath.Dir(file), 0o700)
		if err == nil {
			err = durable.Write(file, []byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// has reports whether a file is in the hub's folder.
func (n *node) has(t *testing.T, name string) bool {
	t.Helper()
	_, err := os.Stat(filepath.Join(n.config.RootDir, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

const setAsideLine = "the Events, upgrades and holds that waited are dropped"

func TestWhatAnotherClusterHasLeftIsSetAside(t *testing.T) {
	n := newNode(t, func(http.ResponseWriter, *http.Request) {})
	run := func() error {
		h, err := n.hub()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			if h.cloud.binding.AwaitMaySend(ctx) == nil {
				cancel() // it is the same
			}
		}()
		return h.Run(ctx)
	}
	for _, uids := range [][2]string{{"s1", "n1"}, {"s1", "n2"}, {"s2", "n2"}} { // either is made anew
		n.uids.Store(&uids)
		if err := run(); err != nil {
			t.Fatalf("%v: %v", uids, err)
		}
	}
	n.leave(t)
	n.uids.Store(&[2]string{"s3", "n3"})
	if err := run(); !errors.Is(err, binding.ErrAnother) {
		t.Fatalf("in another cluster Run returns %v", err)
	}
	if strings.Contains(n.logs.String(), setAsideLine) || !n.has(t, "upgrades/queue/shop_camera.json") {
		t.Error("it was set aside before the start that opens nothing")
	}
	if err := run(); err != nil {
		t.Fatalf("after the start in another cluster: %v", err)
	}
	said := n.logs.String()
	if !strings.Contains(said, `upgrades=1 holds=1 upgrades-of=shop/camera holds-of=shop/till`) {
		t.Errorf("the log has not what was dropped:\n%s", said)
	}
	for name, want := range map[string]bool{
		"upgrades/queue/shop_camera.json": false, config.FormerName + "/upgrades/queue/shop_camera.json": true,
		"cache/cache.log": true, "web-tokens.json": true, "pki/hub.kubeconfig": true,
	} {
		if n.has(t, name) != want {
			t.Errorf("%s: want %v", name, want)
		}
	}
	if err := run(); err != nil || strings.Count(n.logs.String(), setAsideLine) != 1 {
		t.Errorf("at the next start: %v, log:\n%s", err, n.logs.String())
	}
}

func TestTheFolderOfAnotherNodeIsSetAside(t *testing.T) {
	n := newNode(t, func(http.ResponseWriter, *http.Request) {})
	_, stop := n.start(t)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	n.leave(t)
	n.api.Close() // the copy starts without the cloud
	n.config.NodeName = "n2"
	systemd, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer systemd.Close()
	t.Setenv("NOTIFY_SOCKET", systemd.LocalAddr().String())
	for range 2 {
		_, stop = n.start(t)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
	first := make([]byte, 100)
	if size, err := systemd.Read(first); err != nil || !strings.HasPrefix(string(first[:size]), "EXTEND_TIMEOUT_USEC=") {
		t.Errorf("systemd is not told that the start takes longer, but %q: %v", first[:size], err)
	}
	said := n.logs.String()
	if strings.Count(said, setAsideLine) != 1 || !strings.Contains(said, "it is that of node n1, and this is node n2") {
		t.Errorf("the log is\n%s", said)
	}
	for _, name := range []string{"upgrades/hold/shop_till.json", "web-tokens.json", "pki/hub.kubeconfig"} {
		if n.has(t, name) {
			t.Errorf("%s is still there", name)
		}
	}
	// A start that was cut off before the record was written repeats what is left of it, and keeps what was set aside.
	if err := setAside(n.config, true, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if n.has(t, "cache/cache.log") || !n.has(t, config.FormerName+"/upgrades") {
		t.Error("the second time has set nothing aside, or something is left of the cache")
	}
	if err := setAside(n.config, true, slog.New(slog.DiscardHandler)); err != nil || !n.has(t, config.FormerName+"/upgrades") {
		t.Errorf("with nothing left, what was set aside is gone: %v", err)
	}
}

// A folder that a hub uses is not touched by another one that was started by mistake.
func TestTheFolderOfARunningHubIsNotSetAside(t *testing.T) {
	n := newNode(t, func(http.ResponseWriter, *http.Request) {})
	n.start(t)
	n.leave(t)
	other := *n.config
	other.NodeName = "n2"
	if _, err := loadBinding(&other, systemd.NewNotifier(slog.New(slog.DiscardHandler)), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("got %v", err)
	}
	if !n.has(t, "upgrades/hold/shop_till.json") || n.has(t, config.FormerName) {
		t.Error("something was set aside")
	}
}
