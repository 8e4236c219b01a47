package cache

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// nobody is an upstream that cannot be reached.
type nobody struct{}

func (nobody) RoundTrip(*http.Request) (*http.Response, error) { return nil, io.ErrClosedPipe }
func (nobody) WaitUp(ctx context.Context) error                { <-ctx.Done(); return ctx.Err() }
func (nobody) IsUndecided(context.Context) bool                { return false }
func (nobody) Lost(context.Context) <-chan struct{} {
	lost := make(chan struct{})
	close(lost)
	return lost
}

func testOptions(t testing.TB) Options {
	return Options{
		Unreachable: func(error) bool { return true },
		IsNode:      func(context.Context) bool { return true },
		AsNode:      func(ctx context.Context) context.Context { return ctx },
		NodeName:    "n",
		Registerer:  prometheus.NewRegistry(),
		Logger:      slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

func TestTheCacheServesWithoutAStoreFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	if err := os.WriteFile(dir, []byte("a file where the folder should be"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Open(dir, nobody{}, testOptions(t))
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	if views, bytes, trouble := c.Health(); views != 0 || bytes != 0 || trouble != "the cache is in memory only: its file cannot be opened" {
		t.Errorf("its health: %d views, %d bytes, %q", views, bytes, trouble)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	stop()
	if err := <-done; err != nil {
		t.Errorf("run: %v", err)
	}
}
