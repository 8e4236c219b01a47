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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/pause"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// Sender sends a request, whose URL has only a path: with the node's identity or, if asNode is
// false, with only its own Authorization header.
type Sender func(r *http.Request, asNode bool) (*http.Response, error)

// Replay sends the events in their order, also those that are added meanwhile. It returns nil
// when none is left, or ctx's error. While the cloud is away or overloaded, it waits and tries
// again. What an apiserver does not take is set aside: see the package. A second
// Replay waits for the first.
func (s *Spool) Replay(ctx context.Context, do Sender) error {
	select {
	case s.replays <- struct{}{}:
		defer func() { <-s.replays }()
	case <-ctx.Done():
		return ctx.Err()
	}
	var sent, aside int
	defer func() {
		if sent+aside > 0 {
			s.log.Info("events that were posted while the cloud was away were sent", "sent", sent, "setAside", aside, "left", s.Len())
		}
	}()
	limiter := rate.NewLimiter(perSecond, burst)
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
		if ctx.Err() != nil {
			return ctx.Err()
		}
		tooOften := o.result == resultFailed && s.failedTooOften(&e)
		if o.again && !tooOften {
			if !pause.Sleep(ctx, max(retry.Step(), o.after)) {
				return ctx.Err()
			}
			continue
		}
		if o.reason == "" {
			sent++
		} else {
			s.log.Warn("an apiserver does not take an event of an outage: it is set aside", "event", r.event(), "object", r.about(), "result", o.result, "reason", o.reason)
			aside++
		}
		s.metrics.replayed.WithLabelValues(o.result).Inc()
		s.remove(&e)
		if !tooOften { // otherwise it may fail at all
			retry = backoff()
		}
	}
}

const (
	// perSecond is how many events are sent, after a burst. An apiserver bears that load from a thousand nodes that
	// return at once.
	perSecond = 10
	burst     = 5
	maxWait   = time.Minute // also where an apiserver asks for more
)

// backoff returns the waits between tries to send an event: a second at first and maxWait at
// last, each half as long up to one and a half times, so that the retries of many hubs spread.
func backoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second / 2, Factor: 2, Jitter: 2, Cap: maxWait / 2, Steps: math.MaxInt}
}

// outcome is the result of one attempt.
type outcome struct {
	result string
	reason string // why it was not taken; empty if it was
	again  bool
	after  time.Duration // at least, before the next try
}

func (s *Spool) send(ctx context.Context, e *entry, r *record, do Sender) outcome {
	request, err := r.request(ctx, e.authorization)
	if err != nil {
		return outcome{result: resultRefused, reason: err.Error()}
	}
	response, err := do(request, r.isNode())
	if err != nil {
		s.log.Debug("a spooled event was not sent: it waits", "event", r.event(), "err", err)
		return outcome{again: true}
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(response.Body, 1<<20)) // all of it, to reuse the connection
	o := classify(response, r.isNode())
	if o.again || o.result == resultRefused {
		o.reason = reason(response, body)
		s.log.Debug("a spooled event was not taken", "event", r.event(), "reason", o.reason, "again", o.again)
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
		return outcome{result: resultFailed, again: true, after: after(response)}
	case code == http.StatusUnauthorized && node: // its certificate may be renewed; a token is not
		return outcome{again: true}
	default: // its namespace is gone, its user has no permission, or it is invalid
		return outcome{result: resultRefused}
	}
}

const maxReason = 300 // characters

// reason is why an apiserver does not take an event.
func reason(response *http.Response, body []byte) string {
	object, _ := convert.DecodeBody(response.Header.Get("Content-Type"), body, wire.TypeMeta{APIVersion: "v1", Kind: "Status"})
	text := strconv.Itoa(response.StatusCode)
	if s, ok := object.(*metav1.Status); ok {
		text += " " + s.Message
	}
	return fmt.Sprintf("%.*s", maxReason, text)
}

// maxFailures is after how many failures at one event it is set aside. If that is the only one left, they take four
// minutes. An apiserver that fails at all events costs none of a hundred for hours.
const maxFailures = 10

// failedTooOften puts an event at which an apiserver has failed behind all others, and reports whether it did so too
// often.
func (s *Spool) failedTooOften(e *entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	element := s.byName[e.name]
	if element == nil || element.Value.(*entry).number != e.number {
		return false
	}
	s.order.MoveToBack(element)
	e = element.Value.(*entry)
	e.failures++
	return e.failures >= maxFailures
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
	body := wire.AppendBody(nil, wire.Protobuf, r.typeMeta(), r.Bare)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("send event %s: %w", r.event(), err)
	}
	request.Header.Set("Content-Type", wire.Protobuf.MediaType())
	request.Header.Set("Accept", wire.Protobuf.MediaType()+","+wire.JSON.MediaType())
	request.Header.Set("User-Agent", r.UserAgent)
	if !r.isNode() {
		request.Header.Set("Authorization", authorization)
	}
	return request, nil
}
