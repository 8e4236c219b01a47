package cache

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	wal "github.com/edgehub-io/edgehub/cache/log"
)

func TestARetiredCacheHasNoSecretsAndNothingThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, dir := slog.New(slog.DiscardHandler), t.TempDir()
		if n, err := Retire(filepath.Join(dir, "none"), nil, log); n != 0 || err != nil {
			t.Errorf("of a folder that does not exist: %d, %v", n, err)
		}
		u := newUpstream()
		u.shows("100", podJSON("web", "60"))
		u.onText("get", http.StatusOK, secretJSON("a", "50"))
		c, stop := runIn(t, dir, u)
		get(t, c, urlSecretA)
		get(t, c, urlPods)
		u.goAway()
		synctest.Wait()
		for _, name := range []string{"e", "f"} {
			postEvent(t.Context(), t, c, name, "")
		}
		time.Sleep(time.Minute)
		if _, err := Retire(dir, nil, log); !errors.Is(err, wal.ErrLocked) {
			t.Errorf("while it is in use: %v", err)
		}
		stop()
		for _, text := range []string{secretMarker, `"web"`} {
			if got := filesWith(t, dir, text); len(got) == 0 {
				t.Fatalf("no file has %s: this test shows nothing", text)
			}
		}
		for _, want := range []int{2, 0} { // a crash afterwards has it done again
			if n, err := Retire(dir, nil, log); n != want || err != nil {
				t.Errorf("%d events, want %d: %v", n, want, err)
			}
		}
		for text, want := range map[string]bool{secretMarker: false, `"web"`: true} {
			if got := filesWith(t, dir, text); len(got) > 0 != want {
				t.Errorf("files with %s: %q, want %v", text, got, want)
			}
		}
		// One that cannot be read is erased.
		if _, err := Retire(dir, []byte(strings.Repeat("k", 32)), log); err != nil {
			t.Error(err)
		}
		if got, err := filepath.Glob(filepath.Join(dir, "*")); len(got) > 0 || err != nil {
			t.Errorf("there is still %q: %v", got, err)
		}
	})
}

func TestWhatIsWithheldIsAnsweredToNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := ""
		u := newUpstream()
		u.shows("100", podJSON("web", "60"))
		may := make(chan struct{})
		c := startCache(t, u, func(o *Options) {
			o.Withheld = func() string { return why }
			o.AwaitMaySend = func(ctx context.Context) error {
				select {
				case <-may:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		})
		get(t, c, urlPods)
		u.goAway()
		synctest.Wait()
		postEvent(t.Context(), t, c, "e", "")
		before := get(t, c, urlPods)
		why = "it may be another cluster's"
		for _, url := range []string{urlPods, urlPods + "?resourceVersion=0"} {
			res, err := c.RoundTrip(newRequest(t.Context(), http.MethodGet, url))
			if err == nil {
				res.Body.Close()
				t.Errorf("GET %s: %s", url, res.Status)
			} else if !strings.Contains(err.Error(), why) {
				t.Errorf("GET %s: %v", url, err)
			}
		}
		why = ""
		if got := get(t, c, urlPods); got != before {
			t.Errorf("afterwards: %s", got)
		}
		var events atomic.Int64
		u.on("list", func(r *http.Request) *http.Response {
			if strings.HasSuffix(r.URL.Path, "/events") {
				events.Add(1)
			}
			return respond(http.StatusCreated, "{}")
		})
		u.comeBack()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := events.Load(); n != 0 {
			t.Errorf("%d events are sent to a cloud that may be another cluster", n)
		}
		close(may)
		time.Sleep(time.Minute)
		if n := events.Load(); n != 1 {
			t.Errorf("%d events are sent to the same cluster", n)
		}
	})
}
