package cache

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// invariant 16: a disk that takes a second for each write does not delay events.
func TestMeasuredInvariant16_ASlowDiskDelaysNobody(t *testing.T) {
	t.Parallel()
	_, w, frames, trace := tracedWatch(t, "pwrite64,fdatasync,fsync", "delay_enter=1000000")
	// Who waited for the disk would be late nearly always: it is written all the time. On a busy
	// machine any event may be late.
	const events, pause, mayBeLate = 200, 30 * time.Millisecond, 10
	late, slowest := 0, time.Duration(0)
	for i := range events {
		frame := modified(t, "c-007", 101+i)
		began := time.Now()
		send(t, frames, frame)
		w.expect(t, watch.Modified, "c-007")
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
	if delayed := strings.Count(trace(), "DELAYED"); delayed < 5 {
		t.Errorf("%d writes were delayed: the disk was not slow", delayed)
	}
}

// tracedWatch is traced for a hub on which one client watches what comes as frames. What
// was noted so far is read with trace.
func tracedWatch(t *testing.T, calls, inject string) (h *hub, w *stream, frames chan<- []byte, trace func() string) {
	t.Helper()
	option, file := traced(t, calls, inject)
	f := newFake(t)
	sent := make(chan []byte)
	f.script(answering(t, fakeList(100, 50, ""), asJSON), sending(asJSON, sent))
	h = newHubBefore(t, f, option)
	h.node.get(t, fakeMaps, asJSON)
	w = h.node.watch(t, fakeMaps+"?"+watchQuery+"&resourceVersion=100", asJSON)
	return h, w, sent, func() string {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

// modified is a frame of a JSON watch.
func modified(t *testing.T, name string, version int) []byte {
	t.Helper()
	m := fakeMap(name, version)
	m.Kind, m.APIVersion = "ConfigMap", "v1"
	return fmt.Appendf(nil, `{"type":"MODIFIED","object":%s}`+"\n", bytes.TrimSpace(encode(t, &m, asJSON)))
}

// invariant 23: what is on disk does not depend on how many consumers read the same,
// and hardly on how many identities do.
func TestInvariant23_BytesOnDiskDoNotGrowWithConsumers(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.large("c", 100, 7000) // 0.7 MB: the file grows by doubling, so a second copy shows
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
	if ten > one || membersOfTen != members {
		t.Errorf("10 consumers take %d bytes on disk for %v objects, one takes %d for %v", ten, membersOfTen, one, members)
	}
	if three > one*3/2 {
		t.Errorf("3 identities take %d bytes on disk, one takes %d", three, one)
	}
}

// invariant 24: at 200 updates a second the disk is synced at most once a second.
func TestMeasuredInvariant24_SyncsPerSecond(t *testing.T) {
	t.Parallel()
	h, w, frames, trace := tracedWatch(t, "fsync,fdatasync", "")
	h.awaitDisk()
	syncs := func() int { return strings.Count(trace(), "sync(") }
	before, began := syncs(), time.Now()
	const seconds, perSecond = 8, 200
	ticker := time.NewTicker(time.Second / perSecond)
	defer ticker.Stop()
	for i := range seconds * perSecond {
		<-ticker.C
		send(t, frames, modified(t, fmt.Sprintf("c-%03d", i%50), 101+i))
		w.change(t)
	}
	took, n := time.Since(began), syncs()-before
	rate := float64(n) / took.Seconds()
	t.Logf("%d syncs in %v: %.2f a second", n, took.Round(time.Millisecond), rate)
	if n == 0 {
		t.Error("nothing was synced")
	}
	if rate > 1.1 {
		t.Errorf("%.2f syncs a second; want at most 1", rate)
	}
}
