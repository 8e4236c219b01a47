package proxy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// idle answers watches with a header and nothing else, upgrades in the same way,
// and everything else at once.
func idle(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Header.Get("Upgrade") != "":
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		io.WriteString(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
		rw.Flush()
		for line := bufio.NewReader(conn); ; {
			typed, err := line.ReadString('\n')
			if err != nil {
				return
			}
			if typed == "answer\n" {
				io.WriteString(conn, "answered\n")
			}
		}
	case strings.Contains(r.URL.RawQuery, "watch") || strings.Contains(r.URL.RawQuery, "follow"):
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
}

// open sends a request whose answer does not end, and returns its end.
func (c *cloud) open(path string) (ended <-chan error, shut func()) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	res, err := c.send(ctx, http.MethodGet, path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	out := make(chan error, 1)
	go func() {
		defer res.Body.Close()
		_, err := io.Copy(io.Discard, res.Body)
		out <- err
	}()
	return out, cancel
}

func TestIdleWatchIsLeftAloneAndFindsOut(t *testing.T) {
	for name, tt := range map[string]struct {
		path     string
		networks []*fakeNetwork
	}{
		"a watch":                             {pods + "?watch=true", local()},
		"a watch by HTTP/1.1":                 {pods + "?watch=true", local()},
		"a watch on a satellite link":         {pods + "?watch=true", satellite()},
		"a log that is followed":              {"/api/v1/namespaces/n/pods/p/log?follow=true", local()},
		"one on a satellite link by HTTP/1.1": {"/api/v1/namespaces/n/pods/p/log?follow=true", satellite()},
	} {
		t.Run(name, func(t *testing.T) {
			inCloud(t, idle, tt.networks, func(t *testing.T, c *cloud) {
				ended, shut := c.open(tt.path)
				defer shut()
				before := c.sent()
				time.Sleep(time.Hour)
				select {
				case err := <-ended:
					t.Fatalf("it ended with %v; log:\n%s", err, c.log)
				default:
				}
				if perMinute := (c.sent() - before) / 60; perMinute > 1000 {
					t.Errorf("an idle connection costs %d bytes a minute each way", perMinute)
				}
				c.networks[0].set(func(n *fakeNetwork) { n.hole = true })
				cut := time.Now()
				err := <-ended
				if took := time.Since(cut); took > DefaultIdlePing+bound || !isSilent(err) || !c.isLost() {
					t.Errorf("it ended with %v after %v; lost: %v", err, took, c.isLost())
				}
			})
		})
	}
}

// sent is how many bytes both sides have sent over all connections.
func (c *cloud) sent() int {
	total := 0
	for _, n := range c.networks {
		n.set(func(n *fakeNetwork) {
			for _, conn := range n.conns {
				total += conn.out.sent
			}
		})
	}
	return total
}

func TestUpgradedConnectionIsNotWatched(t *testing.T) {
	inCloud(t, idle, local(), func(t *testing.T, c *cloud) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/namespaces/n/pods/p/exec?command=sh", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}}
		res, err := c.upstream.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		shell := res.Body.(io.ReadWriter)
		for range 20 { // somebody types, and the container says nothing
			io.WriteString(shell, "sleep 1000\n")
			time.Sleep(3 * time.Second)
		}
		time.Sleep(time.Hour)
		io.WriteString(shell, "answer\n")
		if line, err := bufio.NewReader(shell).ReadString('\n'); line != "answered\n" || err != nil || c.isLost() {
			t.Errorf("got %q, %v; log:\n%s", line, err, c.log)
		}
	})
}

func TestWhatIsUnderWayEndsWithTheLoss(t *testing.T) {
	slow := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/slow" {
			time.Sleep(time.Minute)
		}
		idle(w, r)
	}
	inCloud(t, slow, local(), func(t *testing.T, c *cloud) {
		watch, shut := c.open(pods + "?watch=true")
		defer shut()
		began := time.Now()
		ends := make(chan error, 10)
		for range cap(ends) {
			go func() {
				_, _, _, err := c.get("/api/v1/slow")
				ends <- err
			}()
		}
		time.Sleep(10 * time.Second)
		c.networks[0].set(func(n *fakeNetwork) { n.hole = true })
		c.mustFail(pods, bound)
		began = began.Add(10 * time.Second)
		for range cap(ends) {
			var unreachable *UnreachableError
			if err := <-ends; !errors.As(err, &unreachable) {
				t.Errorf("a request that was under way ended with %v", err)
			}
		}
		if err := <-watch; err == nil {
			t.Error("a watch that was open ended as if it were complete")
		}
		if took := time.Since(began); took > bound {
			t.Errorf("all were ended after %v", took)
		}
		if n := strings.Count(c.log.String(), "WARN"); n != 1 {
			t.Errorf("%d lines about one loss:\n%s", n, c.log)
		}
	})
}

func TestConnectionThatAGatewayForgotIsNoLoss(t *testing.T) {
	inCloud(t, idle, local(), func(t *testing.T, c *cloud) {
		c.mustGet(pods)
		c.networks[0].set(func(n *fakeNetwork) { n.conns[0].dead = true })
		other := make(chan error)
		go func() { // another caller, on a connection of its own
			for range 50 {
				req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, pods, nil)
				res, err := c.upstream.RoundTrip(req)
				if err != nil {
					other <- err
					return
				}
				res.Body.Close()
				time.Sleep(100 * time.Millisecond)
			}
			other <- nil
		}()
		if _, took := c.mustGet(pods); took > bound {
			t.Errorf("answered after %v", took)
		}
		if err := <-other; err != nil || c.isLost() || strings.Contains(c.log.String(), "WARN") {
			t.Errorf("one connection was taken for the cloud: %v; log:\n%s", err, c.log)
		}
	})
}

func TestReturnIsNoticedWithinTheBound(t *testing.T) {
	for name, tt := range map[string]struct {
		networks   []*fakeNetwork
		lose, find func(*fakeNetwork)
		within     time.Duration
	}{
		"after a black hole":                 {local(), func(n *fakeNetwork) { n.hole = true }, func(n *fakeNetwork) { n.hole = false }, bound},
		"after it was stopped":               {local(), func(n *fakeNetwork) { n.stopped = true }, func(n *fakeNetwork) { n.stopped = false }, bound},
		"after it refused":                   {local(), refuse, func(n *fakeNetwork) { n.refusing = false }, bound},
		"after a black hole, by HTTP/1.1":    {local(), func(n *fakeNetwork) { n.hole = true }, func(n *fakeNetwork) { n.hole = false }, bound},
		"on a satellite link, 3 round trips": {satellite(), func(n *fakeNetwork) { n.hole = true }, func(n *fakeNetwork) { n.hole = false }, bound + 3*1500*time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			inCloud(t, idle, tt.networks, func(t *testing.T, c *cloud) {
				c.mustGet(pods)
				for round := range 10 {
					c.networks[0].set(tt.lose)
					c.mustFail(pods, bound)
					time.Sleep(time.Minute + time.Duration(round)*170*time.Millisecond)
					c.mustFail(pods, 0)
					lost := c.upstream.Lost()
					began := time.Now()
					c.networks[0].set(tt.find)
					if err := c.upstream.WaitUp(t.Context()); err != nil {
						t.Fatal(err)
					}
					if took := time.Since(began); took > tt.within {
						t.Errorf("round %d: found after %v", round, took)
					}
					c.mustGet(pods)
					if c.isLost() || c.upstream.Lost() == lost {
						t.Errorf("round %d: Lost still tells of the loss before", round)
					}
				}
				if n := strings.Count(c.log.String(), "answers again"); n != 10 {
					t.Errorf("%d lines about 10 returns:\n%s", n, c.log)
				}
			})
		})
	}
}

func refuse(n *fakeNetwork) {
	n.refusing = true
	for _, c := range n.conns {
		c.in.ended, c.out.ended = true, true
	}
}

func TestWaitUpEndsWithItsContext(t *testing.T) {
	inCloud(t, idle, local(), func(t *testing.T, c *cloud) {
		if err := c.upstream.WaitUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.networks[0].set(refuse)
		c.mustFail(pods, bound)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := c.upstream.WaitUp(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

func TestProbesOfARefusedApiserverAreFew(t *testing.T) {
	inCloud(t, idle, local(), func(t *testing.T, c *cloud) {
		c.networks[0].set(refuse)
		c.mustFail(pods, bound)
		var before, after int
		c.networks[0].set(func(n *fakeNetwork) { before = n.dials })
		time.Sleep(time.Minute)
		c.networks[0].set(func(n *fakeNetwork) { after = n.dials })
		if n := after - before; n < 59 || n > 61 {
			t.Errorf("%d attempts in a minute, want one a second", n)
		}
	})
}

// storm answers 503 while it is on, but to the paths that spared names.
type storm struct {
	on     atomic.Bool
	spared func(path string) bool
	asked  atomic.Int64 // for /api and /livez
	code   int
}

func (s *storm) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/api" || r.URL.Path == "/livez" {
		s.asked.Add(1)
	}
	if s.on.Load() && (s.spared == nil || !s.spared(r.URL.Path)) {
		w.WriteHeader(s.code)
	}
}

const (
	nodes    = "/api/v1/nodes"
	leases   = "/apis/coordination.k8s.io/v1/leases"
	measured = "/apis/metrics.k8s.io/v1beta1/nodes"
)

func TestStormOfBadAnswers(t *testing.T) {
	health := func(path string) bool { return path == "/livez" }
	api := func(path string) bool { return path == "/livez" || path == "/api" }
	aggregated := func(path string) bool { return !strings.HasPrefix(path, "/apis/metrics.k8s.io/") }
	throttled := func(path string) bool { return path != pods && path != nodes }
	tests := map[string]struct {
		code   int
		spared func(string) bool
		paths  []string
		lost   bool
	}{
		"503 to everything":                             {503, nil, []string{pods, pods, pods}, true},
		"502 to everything":                             {502, nil, []string{pods, pods, pods}, true},
		"504 to everything":                             {504, nil, []string{pods, pods, pods}, true},
		"429 to everything":                             {429, nil, []string{pods, nodes, leases}, true},
		"two are not enough":                            {503, nil, []string{pods, pods}, false},
		"all but its health":                            {503, health, []string{pods, pods, pods}, true},
		"all but its health and discovery":              {503, api, []string{pods, nodes, leases}, true},
		"one resource alone":                            {503, api, []string{pods, pods, pods, pods, pods, pods}, false},
		"an aggregated API that is out of order":        {503, aggregated, []string{measured, measured, measured, measured, measured}, false},
		"an aggregated API, and nothing else is asked":  {503, nil, []string{measured, measured, measured, measured}, false},
		"one client that is throttled on two resources": {429, throttled, []string{pods, nodes, pods, nodes, pods}, false},
		"good answers in between":                       {503, func(p string) bool { return p == leases }, []string{pods, nodes, leases, pods, nodes, leases, pods, nodes}, false},
		"health checks in between are no good answers":  {503, health, []string{pods, "/livez", pods, "/livez", pods}, true},
		"evictions that a budget refuses":               {429, nil, []string{"/api/v1/namespaces/n/pods/p/eviction", "/api/v1/namespaces/n/pods/q/eviction", "/api/v1/namespaces/n/pods/r/eviction"}, false},
		"a kubelet that does not answer its apiserver":  {502, nil, []string{"/api/v1/namespaces/n/pods/p/log", "/api/v1/namespaces/n/pods/p/log", "/api/v1/namespaces/n/pods/p/log"}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := &storm{code: tt.code, spared: tt.spared}
			inCloud(t, s.ServeHTTP, local(), func(t *testing.T, c *cloud) {
				c.mustGet(pods)
				s.on.Store(true)
				for i, path := range tt.paths {
					code, _, _, err := c.get(path)
					want := tt.code
					if tt.spared != nil && tt.spared(path) {
						want = 200
					}
					if last := i == len(tt.paths)-1; last && tt.lost {
						var unreachable *UnreachableError
						if !errors.As(err, &unreachable) || !strings.Contains(err.Error(), "to everything") {
							t.Errorf("%s: %d, %v; want it to be lost", path, code, err)
						}
					} else if code != want || err != nil {
						t.Errorf("%s: %d, %v; want %d", path, code, err, want)
					}
				}
				if c.isLost() != tt.lost {
					t.Errorf("lost: %v, want %v; log:\n%s", c.isLost(), tt.lost, c.log)
				}
				if !tt.lost {
					return
				}
				c.mustFail(leases, 0)
				if code, _, _, err := c.post(leases); err == nil {
					t.Errorf("a write is sent to an apiserver that is lost: %d", code)
				}
				s.on.Store(false)
				began := time.Now()
				if err := c.upstream.WaitUp(t.Context()); err != nil || time.Since(began) > bound {
					t.Errorf("back after %v, %v", time.Since(began), err)
				}
				c.mustGet(pods)
			})
		})
	}
}

func (c *cloud) post(path string) (int, int, time.Duration, error) {
	res, err := c.send(c.t.Context(), http.MethodPost, path, strings.NewReader("{}"))
	if err != nil {
		return 0, 0, 0, err
	}
	return res.StatusCode, 0, 0, res.Body.Close()
}

func TestAWriteAlwaysGetsItsOwnAnswer(t *testing.T) {
	s := &storm{code: 503}
	inCloud(t, s.ServeHTTP, local(), func(t *testing.T, c *cloud) {
		s.on.Store(true)
		for range 3 {
			if code, _, _, err := c.post(pods); code != 503 || err != nil {
				t.Fatalf("%d, %v", code, err)
			}
		}
		if !c.isLost() {
			t.Error("it is not lost")
		}
	})
}

func TestApiserverThatIsWellOnlyInItsHealthDoesNotFlap(t *testing.T) {
	s := &storm{code: 503, spared: func(path string) bool { return path == "/livez" || path == "/api" }}
	inCloud(t, s.ServeHTTP, local(), func(t *testing.T, c *cloud) {
		s.on.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		passed := 0
		for ctx.Err() == nil {
			for _, path := range []string{pods, nodes, leases} {
				if code, _, _, err := c.get(path); err == nil && code == 503 {
					passed++
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
		if losses := strings.Count(c.log.String(), "WARN"); losses < 60 || losses > 150 {
			t.Errorf("lost %d times in an hour, want about once in 30 s", losses)
		}
		if passed > 5 {
			t.Errorf("%d bad answers were passed on", passed)
		}
		s.on.Store(false)
		began := time.Now()
		if err := c.upstream.WaitUp(t.Context()); err != nil || time.Since(began) > maxPause {
			t.Errorf("back after %v, %v", time.Since(began), err)
		}
		c.mustGet(pods)
		s.on.Store(true) // a good answer ends the trial
		for range 2 {
			if code, _, _, err := c.get(pods); code != 503 || err != nil {
				t.Errorf("%d, %v", code, err)
			}
		}
	})
}

func TestOneClientsBadAnswersCostFewQuestions(t *testing.T) {
	s := &storm{code: 503, spared: func(path string) bool { return path != pods }}
	inCloud(t, s.ServeHTTP, local(), func(t *testing.T, c *cloud) {
		s.on.Store(true)
		for range 3600 {
			if code, _, _, err := c.get(pods); code != 503 || err != nil {
				t.Fatalf("%d, %v", code, err)
			}
			time.Sleep(time.Second)
		}
		if n := s.asked.Load(); n < 60 || n > 150 {
			t.Errorf("asked %d times in an hour, want about once in 30 s", n)
		}
	})
}

func TestStoppedHubIsNoLoss(t *testing.T) {
	l := &line{limits: Limits{}.withDefaults(), backlog: func() (uint64, bool) { return 0, false }}
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		l.owedSince, l.strict, l.waiting = now, 1, 1
		l.due = now.Add(DefaultLoss)
		time.Sleep(time.Hour) // this process stood still, or the whole machine
		if _, next := l.lookLocked(time.Now()); next == giveLineUp {
			t.Error("the line was given up for a silence that nobody listened to")
		}
		l.due = time.Now().Add(DefaultLoss)
		time.Sleep(DefaultLoss)
		if _, next := l.lookLocked(time.Now()); next != giveLineUp {
			t.Error("the line was not given up afterwards")
		}
	})
}
