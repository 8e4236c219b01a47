package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

const protobuf = "application/vnd.kubernetes.protobuf"

// open begins one GET in protobuf; an answer other than 200 is an error.
func (t *target) open(ctx context.Context, path, token string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.url+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", protobuf)
	if t.gzip {
		req.Header.Set("Accept-Encoding", "gzip")
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := t.client.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 300))
		return nil, errors.Join(fmt.Errorf("%s by %s: %s %s", path, t.name, res.Status, text), res.Body.Close())
	}
	return res, nil
}

// read returns the body of one GET.
func (t *target) read(ctx context.Context, path string) ([]byte, error) {
	res, err := t.open(ctx, path, "")
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	return io.ReadAll(res.Body)
}

// timed makes one GET and returns how long it took to the end of the body, and
// the body's length.
func (t *target) timed(ctx context.Context, path string) (time.Duration, int64, error) {
	began := time.Now()
	res, err := t.open(ctx, path, "")
	if err != nil {
		return 0, 0, err
	}
	defer res.Body.Close()
	n, err := io.Copy(io.Discard, res.Body)
	return time.Since(began), n, err
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
