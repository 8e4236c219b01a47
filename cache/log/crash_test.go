package log_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/edgehub-io/edgehub/cache/log"
)

// history is what a file was after each commit.
type history struct {
	states []map[string]map[string]row
	files  [][]byte
}

// record makes commits of all kinds, with checkpoints among them, and notes the file after each.
func record(t *testing.T, opts log.Options, due int64) (h history) {
	t.Helper()
	dir := fast(t)
	o := open(t, dir, opts)
	o.log.Limit(due, 1<<30)
	note := func() {
		o.flush(t)
		h.states = append(h.states, o.state())
		h.files = append(h.files, readFile(t, dir))
	}
	note()
	for i, name := range names(3) {
		o.change(t, put("pods", name, fmt.Sprint(i), text(name, 12)), put("entries", name, fmt.Sprint(i), text(name, 12)))
	}
	note()
	o.change(t, remove("pods", "pod-01"), put("doubts", "", "7"))
	note()
	o.change(t, drop("entries"), put("entries", "pod-02", "9", "changed", "another form"))
	note()
	o.change(t, put("pods", "pod-00", "10", "pod-00 at 10"))
	note()
	o.close(t)
	return h
}

// reopen opens a file, and reports which of the states it has, and what was lost. It goes on with it.
func (h *history) reopen(t *testing.T, dir string, opts log.Options, file []byte) (state int, damaged int, lost bool) {
	t.Helper()
	writeFile(t, dir, file)
	o := open(t, dir, opts)
	defer o.close(t)
	got := o.state()
	state = slices.IndexFunc(h.states, func(s map[string]map[string]row) bool { return reflect.DeepEqual(s, got) })
	damaged, lost = o.damaged(t), len(o.lost) > 0
	return state, damaged, lost
}

// Invariants 12 and 13: whatever of what was not synced is missing, the state is one complete earlier state.
func TestAKillAtAnyInstantLeavesACompleteEarlierState(t *testing.T) {
	for name, opts := range options() {
		for what, due := range map[string]int64{"with checkpoints": 1, "without": 1 << 30} {
			t.Run(name+" "+what, func(t *testing.T) {
				t.Parallel()
				dir := filepath.Join(fast(t), "cache")
				h := record(t, opts, due)
				for n := 1; n < len(h.files); n++ {
					before, after := h.files[n-1], h.files[n]
					for at := len(before); at <= len(after); at++ {
						cut := append(bytes.Clone(before[:slots]), after[slots:at]...) // a slot is written after the sync
						state, damaged, lost := h.reopen(t, dir, opts, cut)
						if state != n-1 && state != n || damaged > 0 || lost || at == len(after) && state != n {
							t.Fatalf("commit %d cut at %d of %d: state %d, %d damaged, lost %v", n, at-len(before), len(after)-len(before), state, damaged, lost)
						}
					}
				}
			})
		}
	}
}

// The same, but each of the sectors that were not synced may be missing.
func TestSectorsThatWereNotSyncedMayBeMissing(t *testing.T) {
	const sector = 512
	base, dir := t.TempDir(), filepath.Join(fast(t), "cache")
	o := open(t, base, log.Options{})
	for _, name := range names(3) {
		o.change(t, put("pods", name, "1", text(name, 1000)))
	}
	o.flush(t)
	h := history{states: []map[string]map[string]row{o.state()}, files: [][]byte{readFile(t, base)}}
	o.change(t, remove("pods", "pod-01"))
	for _, name := range []string{"pod-00", "pod-03", "pod-04"} {
		o.change(t, put("pods", name, "2", text(name+" at 2", 1000)))
	}
	o.flush(t)
	h.states, h.files = append(h.states, o.state()), append(h.files, readFile(t, base))
	before, after := h.files[0], h.files[1]
	first, count := len(before)/sector, len(after)/sector-len(before)/sector+1
	saw := map[int]int{}
	for missing := range 1 << count {
		file := bytes.Clone(after)
		for n := range count {
			if missing>>n&1 == 1 {
				clear(file[max((first+n)*sector, len(before)):min((first+n+1)*sector, len(after))])
			}
		}
		state, damaged, lost := h.reopen(t, dir, log.Options{}, file)
		if state < 0 || damaged > 0 || lost || missing == 0 && state != 1 {
			t.Fatalf("without sectors %b of %d: state %d, %d damaged, lost %v", missing, count, state, damaged, lost)
		}
		saw[state]++
	}
	if saw[0] == 0 || saw[1] == 0 {
		t.Errorf("got states %v: this test shows nothing", saw)
	}
}

// What was torn is not there any more when the log goes on.
func TestALogGoesOnAfterAnyCut(t *testing.T) {
	dir := filepath.Join(fast(t), "cache")
	h := record(t, log.Options{}, 1<<30)
	last := len(h.files) - 1
	for at := len(h.files[last-1]); at < len(h.files[last]); at += 7 {
		writeFile(t, dir, h.files[last][:at])
		o := open(t, dir, log.Options{})
		before := o.state()
		if size := stat(t, dir).Size(); size > o.log.Stats().FileBytes {
			t.Errorf("cut at %d, %d bytes are left behind the last commit", at, size-o.log.Stats().FileBytes)
		}
		o.close(t)
		o = open(t, dir, log.Options{})
		o.mustBeWhole(t, before)
		for n := range 3 {
			o.change(t, put("pods", "next", fmt.Sprint(n), text("short", n*20)))
			o.flush(t)
		}
		want := o.state()
		o.close(t)
		o = open(t, dir, log.Options{})
		o.mustBeWhole(t, want)
		o.close(t)
	}
}
