package cache_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/edgehub-io/edgehub/test/internal/metric"
)

// patience is how long anything may take that a hub does by itself. It is long since
// the machine may be busy, and only spent when something is wrong.
const patience = 2 * time.Minute

// play is one round: up to three times load, a fault, and a look at what is left; and
// then the way back to a whole cache.
func (w *world) play() {
	fill(w.cloud, w.rand)
	for range 1 + w.rand.IntN(3) {
		f := w.chooseFault()
		length := time.Duration(100+w.rand.IntN(1<<(7+w.rand.IntN(5)))) * time.Millisecond // mostly short
		w.t.Logf("%v of load, then: %s", length, f.name)
		w.up()
		w.noteStart(w.start())
		stop := w.load()
		w.goOn(length)
		f.do(w)
		stop()
		w.total.fault(f.name)

		w.down()
		w.noteStart(w.start())
		w.look()
		w.kill()
		if w.rand.IntN(2) == 0 {
			w.freeDisk() // or the next one finds it full
		}
		if w.t.Failed() {
			return
		}
	}
	if w.rand.IntN(2) == 0 {
		w.freeDisk()
		w.heal()
	}
}

// goOn lets the hub run for a time that the seed determines, and not until something is so:
// at which instant a fault comes is what chance has to decide. The hub must live on.
func (w *world) goOn(length time.Duration) {
	w.t.Helper()
	select {
	case <-w.gone:
		w.fatal("the hub has ended by itself")
	case <-w.t.Context().Done():
	case <-time.After(length):
	}
}

func (w *world) chooseFault() fault {
	for {
		if f := faults[w.rand.IntN(len(faults))]; w.own || !f.full {
			return f
		}
	}
}

func (t *tally) fault(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults[name]++
}

func (w *world) noteStart(took time.Duration) {
	w.total.mu.Lock()
	defer w.total.mu.Unlock()
	w.total.slowest = max(w.total.slowest, took)
}

func (w *world) up() {
	w.t.Helper()
	if err := w.link.Up(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) down() {
	w.t.Helper()
	if err := w.link.Refuse(); err != nil {
		w.t.Fatal(err)
	}
	w.link.Reset()
}

// look reads all there is from a hub that has no cloud.
func (w *world) look() {
	w.t.Helper()
	for _, v := range w.views {
		if version := w.check(v); version < w.written {
			w.t.Errorf("%s was on disk at version %d when the hub was killed, and is at %d now", v.name, w.written, version)
		}
	}
	w.written = 0
	for _, o := range single(rand.New(rand.NewPCG(w.rand.Uint64(), 3))) {
		w.checkSingle(o)
	}
	select {
	case <-w.gone:
		w.fatal("the hub has ended by itself while it was read")
	default:
	}
	log, err := os.ReadFile(w.output.Name())
	if err != nil {
		w.t.Fatal(err)
	}
	if bytes.Contains(log, []byte("panic:")) || bytes.Contains(log, []byte("fatal error:")) {
		w.fatal("the hub's log has a panic")
	}
}

// heal gives the hub its cloud, and some quiet: then all that its clients read is
// there, as it was last, after one more crash.
func (w *world) heal() {
	w.t.Helper()
	w.up()
	w.noteStart(w.start())
	stop := w.read()
	last := w.cloud.Version()
	w.await("all views are whole again", func() error { return w.whole(last) })
	w.awaitDisk()
	w.kill()
	stop()
	w.down()
	w.noteStart(w.start())
	for _, v := range w.views {
		if version := w.check(v); version != last {
			w.t.Errorf("%s: after the cloud was back it is at version %d, and should be at %d", v.name, version, last)
		}
	}
	if w.t.Failed() {
		w.t.Log(w.tail())
	}
}

func (w *world) await(what string, done func() error) {
	w.t.Helper()
	for began := time.Now(); ; pause(w.t.Context(), 20*time.Millisecond) {
		err := done()
		if err == nil {
			return
		}
		if time.Since(began) > patience {
			w.fatal("after %v not true: %s: %v", patience, what, err)
		}
	}
}

// whole checks what the hub reports of its views: that all are there, whole and at least
// of this version.
func (w *world) whole(version int) error {
	code, body := get(w.t.Context(), w.api+"/debug/cache", "", "")
	var state struct {
		Views []struct {
			Resource, Namespace, LabelSelector, FieldSelector, ResourceVersion string
			Complete, Single                                                   bool
		}
	}
	if err := json.Unmarshal(body, &state); code != http.StatusOK || err != nil {
		return fmt.Errorf("GET /debug/cache: %d, %w", code, err)
	}
	missing := len(w.views)
	for _, v := range state.Views {
		if v.Single {
			continue
		}
		if at, _ := strconv.Atoi(v.ResourceVersion); !v.Complete || at < version {
			return fmt.Errorf("%+v is not whole, or not of version %d", v, version)
		}
		missing--
	}
	if missing > 0 {
		return fmt.Errorf("%d views are missing", missing)
	}
	return nil
}

// awaitDisk waits until there is nothing left to write: two seconds without a commit
// are two of the hub's intervals.
func (w *world) awaitDisk() {
	w.t.Helper()
	seen, since := -1, time.Now()
	w.await("the hub has written all", func() error {
		if now := w.commits(); now != seen {
			seen, since = now, time.Now()
		}
		if quiet := time.Since(since); quiet < 2*time.Second {
			return fmt.Errorf("%d commits, the last of them %v ago", seen, quiet)
		}
		return nil
	})
}

// commits is how often the hub has written to its disk.
func (w *world) commits() int {
	w.t.Helper()
	code, metrics := get(w.t.Context(), w.api+"/metrics", "", "")
	if code != http.StatusOK {
		w.fatal("GET /metrics: %d", code)
	}
	n, _, err := metric.Sum(string(metrics), "edgehub_cache_commits_total", `result="ok"`)
	if err != nil {
		w.t.Fatal(err)
	}
	return int(n) // 0: not one yet
}
