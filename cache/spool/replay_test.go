package spool_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/cache/convert"
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
		return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(strings.NewReader(`{"message":"why not"}`))}, nil
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
	s := open(t, memory(t), spool.Options{})
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
		want  string // what is sent, until the spool is empty
		aside bool   // logged, and counted
	}{
		{"created", 201, false, "a b", false},
		{"created before", 409, false, "a b", false},
		{"forbidden", 403, false, "a b", true},
		{"its namespace is gone", 404, false, "a b", true},
		{"it makes no sense", 422, false, "a b", true},
		{"too large", 413, false, "a b", true},
		{"the token has expired", 401, true, "a b", true},
		{"the node's certificate is being renewed", 401, false, "a a b", false},
		{"cannot be reached", 0, false, "a a b", false},
		{"starting", 503, false, "a a b", false},
		{"busy", 429, false, "a a b", false},
		{"broken for a moment, or at this event", 500, false, "a b a", false},
	} {
		synctest.Test(t, func(t *testing.T) {
			var logged bytes.Buffer
			metrics := prometheus.NewRegistry()
			s := open(t, memory(t), spool.Options{Registerer: metrics, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
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
			if sent := strings.Join(names(got), " "); sent != c.want || s.Len() != 0 {
				t.Errorf("%s: sent %s, want %s; left %d", c.name, sent, c.want, s.Len())
			}
			line := fmt.Sprintf(`event=ns/a object="Pod ns/p" result=refused reason="%d why not"`, c.code)
			if strings.Contains(logged.String(), line) != c.aside || metric(t, metrics, "replayed_total", "refused") == 1 != c.aside {
				t.Errorf("%s: %v are counted, and the log has %s", c.name, metric(t, metrics, "replayed_total", "refused"), &logged)
			}
		})
	}
}

// What an apiserver fails at holds up no others, and is set aside some day, also if it is alone.
func TestAnEventAtWhichTheAPIServerFailsIsSetAside(t *testing.T) {
	for _, others := range []string{"", "a", "a b c d e f g"} {
		synctest.Test(t, func(t *testing.T) {
			var logged bytes.Buffer
			metrics := prometheus.NewRegistry()
			s := open(t, memory(t), spool.Options{Registerer: metrics, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
			for _, name := range append([]string{"bad"}, strings.Fields(others)...) {
				add(t, s, post(name), http.StatusCreated)
			}
			var got []sending
			err := s.Replay(t.Context(), func(r *http.Request, asNode bool) (*http.Response, error) {
				n := len(got)
				res, err := cloud(t, &got, nil)(r, asNode)
				if got[n].name == "bad" {
					res.StatusCode = http.StatusInternalServerError
				}
				return res, err
			})
			if sent := names(got[1:]); err != nil || !strings.HasPrefix(strings.Join(sent, " "), others) || s.Len() != 0 {
				t.Errorf("%v; after it %v are sent, left %d", err, sent, s.Len())
			}
			if n := strings.Count(logged.String(), `event=ns/bad object="Pod ns/p" result=failed reason="500 why not"`); n != 1 || metric(t, metrics, "replayed_total", "failed") != 1 {
				t.Errorf("%d lines about it, %v are counted: %s", n, metric(t, metrics, "replayed_total", "failed"), &logged)
			}
		})
	}
}

func TestAnAPIServerThatFailsAtAllForAnHourCostsNoEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := prometheus.NewRegistry()
		s := open(t, memory(t), spool.Options{Registerer: metrics})
		for i := range 20 {
			add(t, s, post(fmt.Sprint(i)), http.StatusCreated)
		}
		var got []sending
		broken := time.Now().Add(time.Hour)
		err := s.Replay(t.Context(), func(r *http.Request, asNode bool) (*http.Response, error) {
			res, err := cloud(t, &got, nil)(r, asNode)
			if time.Now().Before(broken) {
				res.StatusCode = http.StatusInternalServerError
			}
			return res, err
		})
		if n := metric(t, metrics, "replayed_total", "created"); err != nil || n != 20 || len(got) > 20+130 {
			t.Errorf("%v; of 20 events %v have arrived, by %d tries", err, n, len(got))
		}
	})
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
		s := open(t, memory(t), spool.Options{})
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

// An apiserver's Retry-After counts, the pauses grow to a minute, and begin anew after a success.
func TestTheWaitsBetweenTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, memory(t), spool.Options{})
		add(t, s, post("a"), http.StatusCreated)
		add(t, s, post("b"), http.StatusCreated)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var got []sending
		err := s.Replay(ctx, cloud(t, &got, http.Header{"Retry-After": {"20"}}, append([]int{429}, make([]int, 1000)...)...))
		if n := len(got); !errors.Is(err, context.DeadlineExceeded) || s.Len() != 2 || n < 40 || n > 130 || got[1].at.Sub(got[0].at) != 20*time.Second {
			t.Errorf("%v, left %d; %d tries in an hour, the second after %s", err, s.Len(), n, got[1].at.Sub(got[0].at))
		}
		got = nil
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
		s := open(t, memory(t), spool.Options{})
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
