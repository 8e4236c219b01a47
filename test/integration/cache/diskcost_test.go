package cache

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// invariant 16: a disk that takes a second for each write does not delay events.
func TestMeasuredInvariant16_ASlowDiskDelaysNobody(t *testing.T) {
	t.Parallel()
	option, trace := traced(t, "pwrite64,fdatasync,fsync", "delay_enter=1000000")
	h, s := newHub(t, option), newSpace(t)
	s.create("c")
	w := h.node.watch(t, with(s.path, watchListQuery), asJSON)
	w.initial(t)
	// Who waited for the disk would be late nearly always: it is written all the time. On a busy
	// machine any event may be late.
	const events, pause, mayBeLate = 200, 30 * time.Millisecond, 10
	late, slowest := 0, time.Duration(0)
	for i := range events {
		s.change("c", fmt.Sprint("change ", i))
		began := time.Now()
		w.expect(t, watch.Modified, "c")
		took := time.Since(began)
		slowest = max(slowest, took)
		if took > knownBound {
			late++
		}
		<-time.After(pause)
	}
	if late > mayBeLate {
		t.Errorf("%d of %d events took more than %v, up to %v", late, events, knownBound, slowest)
	}
	t.Logf("the slowest of %d events took %v", events, slowest.Round(time.Millisecond))
	text, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	if delayed := bytes.Count(text, []byte("DELAYED")); delayed < 5 {
		t.Errorf("%d writes were delayed: the disk was not slow", delayed)
	}
}
