package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
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

// watcher notes how long after its update each event arrived.
type watcher struct {
	body   io.ReadCloser
	delays []time.Duration
}

// watchPods opens a watch that begins with the pods as they are. It ends with ctx.
func (t *target) watchPods(ctx context.Context) (*watcher, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.url+"/api/v1/namespaces/"+namespace+"/pods?watch=true&resourceVersion=0&labelSelector=watched%3Dtrue", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", protobuf)
	res, err := t.client.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("watch by %s: %s", t.name, res.Status), res.Body.Close())
	}
	return &watcher{body: res.Body}, nil
}

// read takes n stamped events; others, such as the initial one, are not counted.
func (w *watcher) read(n int) error {
	var frame []byte
	var header [4]byte
	for len(w.delays) < n {
		if _, err := io.ReadFull(w.body, header[:]); err != nil {
			return fmt.Errorf("after %d of %d events: %w", len(w.delays), n, err)
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
		w.delays = append(w.delays, now.Sub(time.Unix(0, nanos)))
	}
	return nil
}

// watchRound opens n watches by each target, updates a pod eventsPerSecond times
// a second, and returns the delays that each target's watchers saw.
func watchRound(ctx context.Context, client kubernetes.Interface, n int, targets [2]*target) (delays [2][]time.Duration, err error) {
	// The last round's stamps would be taken for updates of this one.
	for i := range watchedPods {
		if err := update(ctx, client, i, "none"); err != nil {
			return delays, err
		}
	}
	watching, leave := context.WithCancel(ctx) // ends the watches
	defer leave()
	var watchers [2][]*watcher
	readers := new(errgroup.Group)
	for range n {
		for k, t := range targets {
			w, err := t.watchPods(watching)
			if err != nil {
				return delays, err
			}
			watchers[k] = append(watchers[k], w)
			readers.Go(func() error { return w.read(eventsPerRound) })
		}
	}
	if err := writeEvents(ctx, client); err != nil {
		return delays, err
	}
	if err := readers.Wait(); err != nil {
		return delays, err
	}
	for k := range watchers {
		for _, w := range watchers[k] {
			delays[k] = append(delays[k], w.delays...)
		}
	}
	return delays, nil
}

func writeEvents(ctx context.Context, client kubernetes.Interface) error {
	tick := time.NewTicker(time.Second / eventsPerSecond)
	defer tick.Stop()
	writers, ctx := errgroup.WithContext(ctx)
	writers.SetLimit(8) // an update takes a few ms, and one is due every 5 ms
	for i := range eventsPerRound {
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
