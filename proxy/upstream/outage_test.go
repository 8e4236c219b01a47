package upstream_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgehub-io/edgehub/proxy/upstream"
	"github.com/edgehub-io/edgehub/proxy/upstream/liveness"
)

// idle answers watches and upgrades with a header only, and everything else at once.
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
		"a watch":                     {pods + "?watch=true", local()},
		"a watch by HTTP/1.1":         {pods + "?watch=true", local()},
		"a watch on a satellite link": {pods + "?watch=true", satellite()},
		"a log that is followed":      {"/api/v1/namespaces/n/pods/p/log?follow=true", local()},
		"a log that is followed on a satellite link by HTTP/1.1": {"/api/v1/namespaces/n/pods/p/log?follow=true", satellite()},
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
				if took := time.Since(cut); took > upstream.DefaultIdlePing+bound || !liveness.IsUnresponsive(err) || !c.isLost() {
					t.Errorf("it ended with %v after %v; lost: %v", err, took, c.isLost())
				}
			})
		})
	}
}

// A caller learns since when the last apiserver has been lost, if all of them are.
func TestSinceWhenAllApiserversAreLost(t *testing.T) {
	inCloud(t, idle, append(local(), local()...), func(t *testing.T, c *cloud) {
		since := func() time.Duration {
			_, _, _, err := c.get(pods)
			lost, ok := errors.AsType[*upstream.UnreachableError](err)
			if !ok || lost.Since.IsZero() {
				t.Fatalf("%v, %+v", err, lost)
			}
			return time.Since(lost.Since).Truncate(10 * time.Second)
		}
		c.networks[0].set(func(n *fakeNetwork) { n.hole = true })
		c.mustGet(pods)
		time.Sleep(time.Hour)
		c.networks[1].set(func(n *fakeNetwork) { n.hole = true })
		if got := since(); got != 0 {
			t.Errorf("at the loss of the last: since %v", got)
		}
		time.Sleep(time.Minute)
		if got := since(); got != time.Minute {
			t.Errorf("a minute later: since %v", got)
		}
	})
}

// An apiserver ends a watch at its timeout; one that does not is not there any more, though the connection is, to a proxy.
func TestAWatchEndsAfterItsTimeout(t *testing.T) {
	for _, protocol := range []string{"HTTP/2", "HTTP/1.1"} {
		t.Run(protocol, func(t *testing.T) {
			inCloud(t, idle, local(), func(t *testing.T, c *cloud) {
				began := time.Now()
				ended, shut := c.open(pods + "?watch=true&timeoutSeconds=300")
				defer shut()
				if err := <-ended; err == nil || time.Since(began).Truncate(time.Second) != 310*time.Second || c.isLost() {
					t.Errorf("it ended with %v after %v; lost: %v", err, time.Since(began), c.isLost())
				}
			})
		})
	}
}

// sent returns how many bytes were sent to the apiservers on all connections.
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
		c.networks[0].set(func(n *fakeNetwork) { n.hole = true })
		c.mustFail(pods, bound)
		c.networks[0].set(func(n *fakeNetwork) { n.hole = false }) // before the kernel gives up
		if err := c.upstream.WaitUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		io.WriteString(shell, "answer\n")
		if line, err := bufio.NewReader(shell).ReadString('\n'); line != "answered\n" || err != nil || c.isLost() {
			t.Errorf("got %q, %v; log:\n%s", line, err, c.log)
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
					lost := c.upstream.Lost(t.Context())
					began := time.Now()
					c.networks[0].set(tt.find)
					if err := c.upstream.WaitUp(t.Context()); err != nil {
						t.Fatal(err)
					}
					if took := time.Since(began); took > tt.within {
						t.Errorf("round %d: found after %v", round, took)
					}
					c.mustGet(pods)
					if c.isLost() || c.upstream.Lost(t.Context()) == lost {
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

// gauge returns the value of the metric for the first apiserver.
func gauge(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

func TestStateAndMetricsSayWhen(t *testing.T) {
	inCloud(t, idle, append(local(), local()...), func(t *testing.T, c *cloud) {
		start := time.Now()
		expect := func(when string, all, first bool, since time.Time) {
			t.Helper()
			state := c.upstream.State()
			up := map[bool]float64{true: 1}[first]
			if state.Up != all || state.Servers[0].Up != first || (state.Servers[0].Err == nil) != first || !state.Servers[0].Since.Equal(since) {
				t.Errorf("%s: state %+v", when, state)
			}
			if got := gauge(t, c.registry, "edgehub_upstream_up"); got != up {
				t.Errorf("%s: edgehub_upstream_up is %v", when, got)
			}
			if got := gauge(t, c.registry, "edgehub_upstream_last_change_timestamp_seconds"); got != float64(since.UnixMilli())/1000 {
				t.Errorf("%s: last change is %v, want %v", when, got, since)
			}
		}
		expect("at the start", true, true, start)
		time.Sleep(time.Hour)
		lost := time.Now()
		c.networks[0].set(refuse)
		c.mustGet(pods)
		expect("with the second alone", true, false, c.upstream.State().Servers[0].Since)
		if at := c.upstream.State().Servers[0].Since; at.Sub(lost) > bound {
			t.Errorf("the first is lost since %v, not %v", at, lost)
		}
		c.networks[1].set(refuse)
		c.mustFail(pods, bound)
		expect("with none", false, false, c.upstream.State().Servers[0].Since)
		if s := c.upstream.State(); !s.Since.Equal(s.Servers[1].Since) {
			t.Errorf("all are lost since %v, the last since %v", s.Since, s.Servers[1].Since)
		}
		c.networks[0].set(func(n *fakeNetwork) { n.refusing = false })
		if err := c.upstream.WaitUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect("with the first alone", true, true, time.Now())
	})
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

// viaHTTPProxy makes the way to the first apiserver lead through an HTTP proxy,
// which has a network of its own.
func (c *cloud) viaHTTPProxy(t *testing.T) (way *fakeNetwork) {
	t.Helper()
	way = newFakeNetwork(time.Millisecond, 0)
	api := c.networks[0]
	relay := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		there, err := api.dial(r.Context(), "tcp", r.Host)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		here, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n")
		var both sync.WaitGroup
		for _, ends := range [][2]net.Conn{{here, there}, {there, here}} {
			both.Go(func() { io.Copy(ends[0], ends[1]); ends[0].Close() })
		}
		both.Wait()
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = relay.Serve(way) }()
	c.later = append(c.later, func() {
		way.set(func(n *fakeNetwork) { n.hole, n.stopped = false, false })
		_ = relay.Close()
		<-done
	})
	c.upstream.SetDial(0, way.dial)
	creds := *c.creds
	creds.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy.test:3128"})
	c.upstream.SetCredentials(&creds)
	return way
}

func TestLossAndReturnBehindAnHTTPProxy(t *testing.T) {
	for name, lose := range map[string]func(api, way *fakeNetwork){
		"the apiserver is stopped":              func(api, _ *fakeNetwork) { api.stopped = true },
		"the proxy's way to it is a black hole": func(api, _ *fakeNetwork) { api.hole = true },
		"the way to the proxy is a black hole":  func(_, way *fakeNetwork) { way.hole = true },
		"the proxy is stopped":                  func(_, way *fakeNetwork) { way.stopped = true },
		"the proxy refuses":                     func(_, way *fakeNetwork) { refuse(way) },
		"the apiserver refuses, says the proxy": func(api, _ *fakeNetwork) { refuse(api) },
	} {
		for _, warm := range []string{"at the first request", "under an open connection"} {
			t.Run(name+" "+warm, func(t *testing.T) {
				inCloud(t, idle, local(), func(t *testing.T, c *cloud) {
					way := c.viaHTTPProxy(t)
					if warm != "at the first request" {
						c.mustGet(pods)
						time.Sleep(time.Second) // what the request still reports
						before := c.sent()
						time.Sleep(time.Minute)
						if n := c.sent() - before; n > 0 || c.log.Len() > 0 {
							t.Errorf("a minute with nothing to do took %d bytes; log: %s", n, c.log)
						}
						c.mustGet(pods)
					}
					way.set(func(*fakeNetwork) { c.networks[0].set(func(api *fakeNetwork) { lose(api, way) }) })
					c.mustFail(pods, bound)
					if !c.isLost() {
						t.Errorf("it is not lost; log:\n%s", c.log)
					}
					c.mustFail(pods, 0)
					time.Sleep(time.Minute)
					began := time.Now()
					for _, n := range []*fakeNetwork{way, c.networks[0]} {
						n.set(func(n *fakeNetwork) { n.hole, n.stopped, n.refusing = false, false, false })
					}
					if err := c.upstream.WaitUp(t.Context()); err != nil || time.Since(began) > bound {
						t.Errorf("found after %v, %v; log:\n%s", time.Since(began), err, c.log)
					}
					c.mustGet(pods)
				})
			})
		}
	}
}
