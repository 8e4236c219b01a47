package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

const protobuf = "application/vnd.kubernetes.protobuf"

// timed makes one GET and returns how long it took to the end of the body, and
// the body's length.
func (t *target) timed(ctx context.Context, path string) (time.Duration, int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.url+path, nil)
	if err != nil {
		return 0, 0, err
	}
	req.Header.Set("Accept", protobuf)
	if t.gzip {
		req.Header.Set("Accept-Encoding", "gzip")
	}
	began := time.Now()
	res, err := t.client.Do(req)
	if err != nil {
		return 0, 0, err
	}
	defer res.Body.Close()
	n, err := io.Copy(io.Discard, res.Body)
	if err != nil {
		return 0, 0, err
	}
	if res.StatusCode != http.StatusOK {
		return 0, 0, fmt.Errorf("%s%s answers %s", t.url, path, res.Status)
	}
	return time.Since(began), n, nil
}

// alternate makes n requests to each target, in turns, so that whatever else
// the machine does falls on both, and returns the times of each.
func alternate(ctx context.Context, path string, n int, targets [2]*target) (times [2][]time.Duration, size int64, err error) {
	for i := range n {
		for j := range targets {
			k := (i + j) % 2 // the first in turn changes
			d, bytes, err := targets[k].timed(ctx, path)
			if err != nil {
				return times, 0, err
			}
			times[k] = append(times[k], d)
			size = bytes
		}
	}
	return times, size, nil
}
