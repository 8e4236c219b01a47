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

// invariant 23: what is on disk does not depend on how many consumers read the same,
// and hardly on how many identities do.
func TestInvariant23_BytesOnDiskDoNotGrowWithConsumers(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	const object = 7000 // bytes
	s.large("c", 100, object)
	size := func(consumers int, accounts ...string) (bytes int64, objects float64) {
		t.Helper()
		h := newHub(t)
		clients := []*client{h.node}
		for _, token := range accounts {
			clients = append(clients, h.as(token))
		}
		for _, c := range clients {
			for i := range consumers {
				c = c.named(fmt.Sprintf("consumer-%d/v1", i))
				c.servedList(t, s.path, protobuf)
				c.watch(t, with(s.path, watchListQuery), protobuf).initial(t)
			}
		}
		objects, ok := h.metric("edgehub_cache_objects")
		if !ok {
			t.Fatal("there is no metric edgehub_cache_objects")
		}
		h.stop()
		info, err := os.Stat(largestFile(t, h.cacheDir()))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size(), objects
	}
	one, members := size(1)
	ten, membersOfTen := size(10)
	three, _ := size(1, s.account("alice"), s.account("bob"))
	t.Logf("1 consumer: %d bytes; 10: %d; 3 identities: %d", one, ten, three)
	// Each commit is a record in the log. A second copy of any object would be larger.
	if ten >= one+object || membersOfTen != members {
		t.Errorf("10 consumers take %d bytes on disk for %v objects, one takes %d for %v", ten, membersOfTen, one, members)
	}
	if three > one*3/2 {
		t.Errorf("3 identities take %d bytes on disk, one takes %d", three, one)
	}
}
