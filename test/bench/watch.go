package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

const (
	eventsPerSecond = 200
	eventsPerRound  = 5 * eventsPerSecond

	// watchedPods are updated in turns, so that no two updates wait for each
	// other.
	watchedPods = 100

	// stamp precedes, in an annotation, the time of an update in nanoseconds; a
	// watcher finds it without decoding.
	stamp       = "written-at="
	stampDigits = 19
)

// watcher notes when each event arrived.
type watcher struct {
	body io.ReadCloser
	seen []seen
}

// seen is one event: when it was written, by its stamp, and when it
// arrived.
type seen struct{ written, arrived time.Time }

// watchPods opens a watch that begins with the pods as they are. It ends with ctx.
func (t *target) watchPods(ctx context.Context) (*watcher, error) {
	res, err := t.open(ctx, "/api/v1/namespaces/"+namespace+"/pods?watch=true&resourceVersion=0&labelSelector=watched%3Dtrue", "") //nolint:bodyclose // it ends with ctx
	if err != nil {
		return nil, err
	}
	return &watcher{body: res.Body}, nil
}

// read takes n stamped events; others, such as the initial one, are not counted.
func (w *watcher) read(n int) error {
	var frame []byte
	var header [4]byte
	for len(w.seen) < n {
		if _, err := io.ReadFull(w.body, header[:]); err != nil {
			return fmt.Errorf("after %d of %d events: %w", len(w.seen), n, err)
		}
		size := int(binary.BigEndian.Uint32(header[:]))
		if cap(frame) < size {
			frame = make([]byte, size)
		}
		frame = frame[:size]
		if _, err := io.ReadFull(w.body, frame); err != nil {
			return err
		}
		now := time.Now()
		at := bytes.Index(frame, []byte(stamp))
		if at < 0 {
			continue
		}
		nanos, err := strconv.ParseInt(string(frame[at+len(stamp):at+len(stamp)+stampDigits]), 10, 64)
		if err != nil {
			return err
		}
		w.seen = append(w.seen, seen{time.Unix(0, nanos), now})
	}
	return nil
}

// delays are what the watchers of one target saw in one round.
type delays struct {
	total []time.Duration // from the update to the event
	added []time.Duration // from the event at a watcher without a proxy; may be negative
}

// watchRound opens n watches by each target and one straight to the apiserver,
// updates a pod eventsPerSecond times a second, and returns the delays that each
// target's watchers saw.
func (b *bench) watchRound(ctx context.Context, n int) (out [2]delays, err error) {
	// The last round's stamps would be taken for updates of this one.
	for i := range watchedPods {
		if err := update(ctx, b.client, i, "none"); err != nil {
			return out, err
		}
	}
	watching, leave := context.WithCancel(ctx) // ends the watches
	defer leave()
	readers := new(errgroup.Group)
	open := func(t *target) (*watcher, error) {
		w, err := t.watchPods(watching)
		if err == nil {
			readers.Go(func() error { return w.read(eventsPerRound) })
		}
		return w, err
	}
	direct, err := open(b.direct)
	if err != nil {
		return out, err
	}
	var watchers [2][]*watcher
	for range n {
		for k, t := range b.targets {
			w, err := open(t)
			if err != nil {
				return out, err
			}
			watchers[k] = append(watchers[k], w)
		}
	}
	if err := writeEvents(ctx, b.client, eventsPerRound); err != nil {
		return out, err
	}
	if err := readers.Wait(); err != nil {
		return out, err
	}
	straight := make(map[time.Time]time.Time)
	for _, e := range direct.seen {
		straight[e.written] = e.arrived
	}
	for k := range watchers {
		for _, w := range watchers[k] {
			for _, e := range w.seen {
				out[k].total = append(out[k].total, e.arrived.Sub(e.written))
				out[k].added = append(out[k].added, e.arrived.Sub(straight[e.written]))
			}
		}
	}
	return out, nil
}

// writeEvents makes n updates, eventsPerSecond of them a second.
func writeEvents(ctx context.Context, client kubernetes.Interface, n int) error {
	tick := time.NewTicker(time.Second / eventsPerSecond)
	defer tick.Stop()
	writers, ctx := errgroup.WithContext(ctx)
	writers.SetLimit(8) // an update takes a few ms, and one is due every 5 ms
	for i := range n {
		<-tick.C
		writers.Go(func() error {
			return update(ctx, client, i%watchedPods, stamp+strconv.FormatInt(time.Now().UnixNano(), 10))
		})
	}
	return writers.Wait()
}

func update(ctx context.Context, client kubernetes.Interface, pod int, value string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"edgehub.io/bench":%q}}}`, value)
	_, err := client.CoreV1().Pods(namespace).Patch(ctx, podName(pod), types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
