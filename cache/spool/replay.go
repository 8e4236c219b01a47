package spool

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/edgehub-io/edgehub/cache/pause"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// Sender sends a request, whose URL has only a path: with the node's identity or, if asNode is
// false, with only its own Authorization header.
type Sender func(r *http.Request, asNode bool) (*http.Response, error)

// Replay sends the events in their order, also those that are added meanwhile. It returns nil
// when none is left, or ctx's error. While the cloud is away or overloaded, it waits and tries
// again. An event at which the apiserver fails holds up no others: see the package. A second
// Replay waits for the first.
func (s *Spool) Replay(ctx context.Context, do Sender) error {
	select {
	case s.replays <- struct{}{}:
		defer func() { <-s.replays }()
	case <-ctx.Done():
		return ctx.Err()
	}
	var sent, refused int
	defer func() {
		if sent+refused > 0 {
			s.log.Info("events that were posted while the cloud was away were sent", "sent", sent, "refused", refused, "left", s.Len())
		}
	}()
	limiter := rate.NewLimiter(rate.Limit(s.opts.PerSecond), burst)
	retry := backoff()
	for {
		e, r, ok := s.first()
		if !ok {
			return nil
		}
		if err := limiter.Wait(ctx); err != nil {
			return err
		}
		o := s.send(ctx, &e, &r, do)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case o.status != 0:
			drop, wait := s.failed(&e)
			if drop {
				s.log.Warn("the apiserver fails at a spooled event, and takes others: it is dropped", "event", e.name, "status", o.status)
				s.metrics.dropped.WithLabelValues(reasonFailed).Inc()
				s.remove(e.number, e.name)
				refused++
				continue
			}
			if wait && !pause.Sleep(ctx, max(retry.Step(), o.after)) {
				return ctx.Err()
			}
			continue
		case o.again:
			if !pause.Sleep(ctx, max(retry.Step(), o.after)) {
				return ctx.Err()
			}
			continue
		case o.result == resultRefused:
			refused++
		case o.result == resultCreated:
			s.Created()
			sent++
		default:
			sent++
		}
		s.metrics.replayed.WithLabelValues(o.result).Inc()
		s.remove(e.number, e.name)
		retry = backoff()
	}
}

const (
	burst   = 5
	maxWait = time.Minute // also where an apiserver asks for more
)

// backoff returns the waits between tries to send an event: a second at first and maxWait at
// last, each half as long up to one and a half times, so that the retries of many hubs spread.
func backoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second / 2, Factor: 2, Jitter: 2, Cap: maxWait / 2, Steps: math.MaxInt}
}

// outcome is the result of one attempt.
type outcome struct {
	result string
	again  bool
	after  time.Duration // at least, before the next try
	status int           // of an apiserver that has failed, maybe at this event alone; otherwise 0
}

func (s *Spool) send(ctx context.Context, e *entry, r *record, do Sender) outcome {
	request, err := r.request(ctx, e.owner.authorization)
	if err != nil {
		s.log.Debug("a spooled event cannot be sent: it is dropped", "event", e.name, "err", err)
		return outcome{result: resultRefused}
	}
	response, err := do(request, r.Node)
	if err != nil {
		s.log.Debug("a spooled event was not sent: it waits", "event", e.name, "err", err)
		return outcome{again: true}
	}
	defer response.Body.Close()
	io.Copy(io.Discard, io.LimitReader(response.Body, 1<<20)) //nolint:errcheck // to reuse the connection
	o := classify(response, r.Node)
	if o.again || o.result == resultRefused {
		s.log.Debug("a spooled event was refused", "event", e.name, "status", response.StatusCode, "again", o.again)
	}
	return o
}

// classify returns the outcome for an answer.
func classify(response *http.Response, node bool) outcome {
	switch code := response.StatusCode; {
	case code/100 == 2:
		return outcome{result: resultCreated}
	case code == http.StatusConflict: // created before
		return outcome{result: resultExists}
	case code == http.StatusServiceUnavailable, code == http.StatusTooManyRequests, code == http.StatusRequestTimeout:
		return outcome{again: true, after: after(response)}
	case code/100 == 5: // etcd does not take it, a webhook fails at it, or all is broken
		return outcome{again: true, after: after(response), status: code}
	case code == http.StatusUnauthorized && node: // its certificate may be renewed; a token is not
		return outcome{again: true}
	default: // its namespace is gone, its user has no permission, or it is invalid
		return outcome{result: resultRefused}
	}
}

const (
	maxInARow = 3 // failures at an event before others are sent first
	// maxProofs is how many more failures, each of them after the apiserver took another event, end
	// the tries. Where every second apiserver fails at everything, one event of 256 is lost.
	maxProofs = 5
)

// failed notes that the apiserver has failed at an event. It reports whether the event is to be
// dropped, and otherwise whether to wait: the apiserver may fail at all events.
func (s *Spool) failed(e *entry) (drop, wait bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	element := s.byName[e.name]
	if element == nil || element.Value.(*entry).number != e.number {
		return false, true // it is gone
	}
	e = element.Value.(*entry)
	if e.failures++; e.failures < maxInARow {
		return false, true
	}
	s.order.MoveToBack(element)
	proof := e.failures > maxInARow && s.created != s.tried
	s.tried = s.created
	if proof {
		e.proofs++
	}
	return e.proofs == maxProofs, !proof
}

// Created must be called when an apiserver has created another event than those that Replay sends:
// it shows that it does not fail at all of them.
func (s *Spool) Created() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.created++
}

// after returns the time of a Retry-After header.
func after(response *http.Response) time.Duration {
	seconds, err := strconv.Atoi(response.Header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return min(time.Duration(seconds), maxWait/time.Second) * time.Second
}

func (r *record) request(ctx context.Context, authorization string) (*http.Request, error) {
	prefix := "/apis/" + r.APIVersion
	if r.APIVersion == "v1" {
		prefix = "/api/v1"
	}
	path := prefix + "/namespaces/" + url.PathEscape(r.Namespace) + "/events"
	body := wire.AppendBody(nil, wire.Protobuf, r.typeMeta(), r.bare)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("send event %s: %w", r.name(), err)
	}
	request.Header.Set("Content-Type", wire.Protobuf.MediaType())
	request.Header.Set("Accept", wire.Protobuf.MediaType()+","+wire.JSON.MediaType())
	request.Header.Set("User-Agent", r.UserAgent)
	if !r.Node {
		request.Header.Set("Authorization", authorization)
	}
	return request, nil
}
