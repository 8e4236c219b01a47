package spool_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/pause"
	"github.com/edgehub-io/edgehub/cache/spool"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// sending is a request that has arrived.
type sending struct {
	name, path, authorization, userAgent string
	asNode                               bool
	at                                   time.Time
	event                                *corev1.Event
}

// cloud answers with the codes given, then 201; 0 is an error of the network.
func cloud(tb testing.TB, got *[]sending, header http.Header, codes ...int) spool.Sender {
	return func(r *http.Request, asNode bool) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			tb.Error(err)
		}
		event, err := convert.DecodeBody(r.Header.Get("Content-Type"), body, wire.TypeMeta{})
		if err != nil {
			tb.Error(err)
		}
		e := event.(*corev1.Event)
		*got = append(*got, sending{e.Name, r.Method + " " + r.URL.RequestURI(), r.Header.Get("Authorization"), r.UserAgent(), asNode, time.Now(), e})
		code := http.StatusCreated
		if len(codes) > 0 {
			code, codes = codes[0], codes[1:]
		}
		if code == 0 {
			return nil, errors.New("connection refused")
		}
		return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(strings.NewReader("{}"))}, nil
	}
}

func names(got []sending) (all []string) {
	for _, s := range got {
		all = append(all, s.name)
	}
	return all
}

func sentBy(tb testing.TB, s *spool.Spool) []string {
	tb.Helper()
	var got []sending
	if err := s.Replay(tb.Context(), cloud(tb, &got, nil)); err != nil {
		tb.Fatal(err)
	}
	return names(got)
}

func TestReplaySendsEachAsWhoPostedIt(t *testing.T) {
	s := open(t, memory{}, spool.Options{})
	add(t, s, post("a"), http.StatusCreated)
	add(t, s, byToken(post("b"), "someone", "t1"), http.StatusCreated)
	add(t, s, byToken(patched("b", 3), "someone", "t2"), http.StatusOK)
	var got []sending
	if err := s.Replay(t.Context(), cloud(t, &got, nil)); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || s.Len() != 0 {
		t.Fatalf("sent %v, left %d", names(got), s.Len())
	}
	if a := got[0]; !a.asNode || a.authorization != "" || a.path != "POST /api/v1/namespaces/ns/events" || a.userAgent != "kubelet/v1" || a.event.ResourceVersion != "" {
		t.Errorf("the node's: %+v", a)
	}
	if b := got[1]; b.asNode || b.authorization != "Bearer t2" || b.event.Count != 3 {
		t.Errorf("with the newest token: %+v", b)
	}
}

func TestWhatAnswersMean(t *testing.T) {
	for _, c := range []struct {
		name  string
		code  int
		token bool
		tries int
	}{
		{"created", 201, false, 1},
		{"created before", 409, false, 1},
		{"forbidden", 403, false, 1},
		{"its namespace is gone", 404, false, 1},
		{"it makes no sense", 422, false, 1},
		{"too large", 413, false, 1},
		{"the token has expired", 401, true, 1},
		{"the node's certificate is being renewed", 401, false, 2},
		{"cannot be reached", 0, false, 2},
		{"starting", 503, false, 2},
		{"broken for a moment", 500, false, 2},
		{"busy", 429, false, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := open(t, memory{}, spool.Options{})
			r := post("a")
			if c.token {
				r = byToken(r, "someone", "t")
			}
			add(t, s, r, http.StatusCreated)
			add(t, s, post("b"), http.StatusCreated)
			var got []sending
			if err := s.Replay(t.Context(), cloud(t, &got, nil, c.code)); err != nil {
				t.Fatal(err)
			}
			want := append(slices.Repeat([]string{"a"}, c.tries), "b")
			if !slices.Equal(names(got), want) || s.Len() != 0 {
				t.Errorf("%s: sent %v, want %v; left %d", c.name, names(got), want, s.Len())
			}
		})
	}
}

// failsAt answers with 500 to an event, and with 201 to others.
func failsAt(tb testing.TB, name string, got *[]sending) spool.Sender {
	return func(r *http.Request, asNode bool) (*http.Response, error) {
		before := len(*got)
		res, err := cloud(tb, got, nil)(r, asNode)
		if (*got)[before].name == name {
			res.StatusCode = http.StatusInternalServerError
		}
		return res, err
	}
}

func TestAnEventAtWhichTheAPIServerFailsHoldsUpNoOthers(t *testing.T) {
	for name, others := range map[string][]string{
		"many follow it":  {"a", "b", "c", "d", "e", "f", "g"},
		"one follows it":  {"a"},
		"none follows it": nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var logged bytes.Buffer
				metrics := prometheus.NewRegistry()
				s := open(t, memory{}, spool.Options{Registerer: metrics, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
				for _, name := range append([]string{"bad"}, others...) {
					add(t, s, post(name), http.StatusCreated)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				go func() {
					for ctx.Err() == nil { // clients create events
						pause.Sleep(ctx, time.Minute)
						s.Created()
					}
				}()
				var got []sending
				err := s.Replay(ctx, failsAt(t, "bad", &got))
				sent := slices.DeleteFunc(names(got), func(name string) bool { return name == "bad" })
				if err != nil || !slices.Equal(sent, others) || s.Len() != 0 {
					t.Errorf("%v; sent %v, left %d", err, sent, s.Len())
				}
				if n := len(got) - len(sent); n > 20 {
					t.Errorf("the event was sent %d times", n)
				}
				if n := strings.Count(logged.String(), "ns/bad"); n != 1 {
					t.Errorf("%d lines about it: %s", n, &logged)
				}
				if n := metric(t, metrics, "dropped_total", "failed"); n != 1 {
					t.Errorf("%v are counted", n)
				}
			})
		})
	}
}

func TestNoEventIsLostWhileTheAPIServerFailsAtAll(t *testing.T) {
	down := slices.Repeat([]int{http.StatusInternalServerError}, 100)
	one := []int{http.StatusCreated}
	for name, codes := range map[string][]int{
		"once":                                   down,
		"with an event that it takes in between": slices.Concat(down, one, down, one, down, one, down),
		"after the first":                        slices.Concat(one, down),
		"in turns with connections that break":   slices.Repeat([]int{500, 0, 502, 503, 504, 429}, 20),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				metrics := prometheus.NewRegistry()
				s := open(t, memory{}, spool.Options{Registerer: metrics})
				for i := range 10 {
					add(t, s, post(fmt.Sprint(i)), http.StatusCreated)
				}
				var got []sending
				if err := s.Replay(t.Context(), cloud(t, &got, nil, codes...)); err != nil {
					t.Fatal(err)
				}
				if n := metric(t, metrics, "dropped_total", "failed"); n != 0 || s.Len() != 0 {
					t.Errorf("%v were dropped, %d are left", n, s.Len())
				}
			})
		})
	}
}

// metric returns a metric of the spool, of a reason where it has one.
func metric(t *testing.T, metrics *prometheus.Registry, name, reason string) float64 {
	t.Helper()
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "edgehub_event_spool_"+name && (reason == "" || m.GetLabel()[0].GetValue() == reason) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

func TestReplayIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, memory{}, spool.Options{PerSecond: 10})
		generated := post("")
		generated.Body = []byte(`{"metadata":{"generateName":"x-"}}`)
		for range 25 {
			add(t, s, generated, http.StatusCreated)
		}
		start := time.Now()
		var got []sending
		if err := s.Replay(t.Context(), cloud(t, &got, nil)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("25 events after a burst of 5 took %s", took)
		}
	})
}

func TestReplayWaitsAsLongAsItIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, memory{}, spool.Options{})
		add(t, s, post("a"), http.StatusCreated)
		var got []sending
		if err := s.Replay(t.Context(), cloud(t, &got, http.Header{"Retry-After": {"20"}}, 429)); err != nil {
			t.Fatal(err)
		}
		if d := got[1].at.Sub(got[0].at); d != 20*time.Second {
			t.Errorf("tried again after %s", d)
		}
	})
}

func TestReplayBacksOffAndEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, memory{}, spool.Options{})
		add(t, s, post("a"), http.StatusCreated)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var got []sending
		err := s.Replay(ctx, cloud(t, &got, nil, make([]int, 1000)...))
		if !errors.Is(err, context.DeadlineExceeded) || s.Len() != 1 {
			t.Errorf("%v, left %d", err, s.Len())
		}
		if n := len(got); n < 40 || n > 130 {
			t.Errorf("%d tries in an hour", n)
		}
		if sent := sentBy(t, s); !slices.Equal(sent, []string{"a"}) {
			t.Errorf("afterwards sent %v", sent)
		}
	})
}

func TestTheBackoffStartsAnewAfterASuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, memory{}, spool.Options{})
		add(t, s, post("a"), http.StatusCreated)
		add(t, s, post("b"), http.StatusCreated)
		var got []sending
		if err := s.Replay(t.Context(), cloud(t, &got, nil, 0, 0, 0, 0, 0, 0, 0, 201, 0)); err != nil {
			t.Fatal(err)
		}
		last, before := got[len(got)-1], got[len(got)-2]
		if d := last.at.Sub(before.at); before.name != "b" || d > 2*time.Second {
			t.Errorf("%s was tried again after %s", before.name, d)
		}
	})
}

func TestASecondReplayWaitsForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, memory{}, spool.Options{})
		add(t, s, post("a"), http.StatusCreated)
		inside := make(chan struct{})
		done := make(chan error, 1)
		go func() {
			done <- s.Replay(t.Context(), func(*http.Request, bool) (*http.Response, error) {
				<-inside
				return &http.Response{StatusCode: http.StatusCreated, Body: http.NoBody}, nil
			})
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var got []sending
		if err := s.Replay(ctx, cloud(t, &got, nil)); !errors.Is(err, context.DeadlineExceeded) || len(got) != 0 {
			t.Errorf("%v, sent %v", err, names(got))
		}
		close(inside)
		if err := <-done; err != nil || s.Len() != 0 {
			t.Errorf("%v, left %d", err, s.Len())
		}
	})
}
