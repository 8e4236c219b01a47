package upstream_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/proxy/upstream"
)

// slow answers one path after a minute, and the others as idle does.
func slow(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/api/v1/slow" {
		time.Sleep(time.Minute)
	}
	idle(w, r)
}

func TestWhatIsUnderWayEndsWithTheLoss(t *testing.T) {
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
		if _, _, took, err := c.get(pods); took > bound || err == nil || strings.Count(err.Error(), "api-0") != 1 {
			t.Errorf("after %v: %v; want the apiserver named once", took, err)
		}
		began = began.Add(10 * time.Second)
		for range cap(ends) {
			var unreachable *upstream.UnreachableError
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

func TestARequestThatIsAloneUnderWayEndsWithTheLoss(t *testing.T) {
	// refused lets the apiserver refuse new connections while others stay open. As long as the
	// node needs no new one, that is no loss.
	refused := func(c *cloud, lost bool) {
		c.networks[0].set(func(n *fakeNetwork) { n.refusing = true })
		// Watches take the connections that pings have left.
		for range 5 {
			res, err := c.send(c.t.Context(), http.MethodGet, pods+"?watch=true", nil)
			if err != nil {
				break
			}
			defer res.Body.Close()
		}
		_, _, _, err := c.get(pods)
		time.Sleep(100 * time.Millisecond) // for the hub's own check
		if (err != nil) != lost || c.isLost() != lost {
			c.t.Errorf("lost: %v, want %v; a request got %v", c.isLost(), lost, err)
		}
		c.networks[0].set(func(n *fakeNetwork) { n.refusing = false })
	}
	for name, before := range map[string]func(c *cloud){
		"by HTTP/2":                         func(*cloud) {},
		"by HTTP/1.1":                       func(*cloud) {},
		"while new connections are refused": func(c *cloud) { refused(c, false) },
		"while new connections are refused, by HTTP/1.1": func(c *cloud) { refused(c, true) },
	} {
		t.Run(name, func(t *testing.T) {
			inCloud(t, slow, local(), func(t *testing.T, c *cloud) {
				c.mustGet(pods)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				ended := make(chan error, 1)
				go func() {
					_, err := c.send(ctx, http.MethodGet, "/api/v1/slow", nil)
					ended <- err
				}()
				time.Sleep(10 * time.Second)
				before(c)
				c.networks[0].set(func(n *fakeNetwork) { n.hole = true })
				cut := time.Now()
				err := <-ended
				if took := time.Since(cut); took > bound+upstream.DefaultProbe || err == nil || !c.isLost() {
					t.Errorf("it ended after %v with %v; lost: %v", took, err, c.isLost())
				}
			})
		})
	}
}

func TestWhatIsUnderWayGoesOnElsewhereAfterAFailureToWrite(t *testing.T) {
	inCloud(t, slow, local(), func(t *testing.T, c *cloud) {
		c.mustGet(pods)
		ended := make(chan error, 1)
		go func() {
			_, _, _, err := c.get("/api/v1/slow")
			ended <- err
		}()
		time.Sleep(100 * time.Millisecond) // it is sent, and no ping is due
		c.networks[0].set(func(n *fakeNetwork) { n.conns[0].reset = true })
		c.mustGet(pods)
		if err := <-ended; err != nil || c.isLost() {
			t.Errorf("it ended with %v; log:\n%s", err, c.log)
		}
	})
}

func TestNewCredentialsCloseNoConnectionThatIsAboutToBeUsed(t *testing.T) {
	inCloud(t, idle, local(), func(t *testing.T, c *cloud) {
		before := c.upstream.Transport(0)
		conn, err := before.DialContext(t.Context(), "tcp", "api-0.test:6443")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		isClosed := func() (closed bool) {
			c.networks[0].set(func(n *fakeNetwork) { closed = n.conns[0].closed })
			return closed
		}
		c.upstream.SetCredentials(c.creds)
		if isClosed() {
			t.Error("it was closed before its first request, which then fails, and the apiserver with it")
		}
		before.Close()
		if !isClosed() {
			t.Error("it is open though all is over")
		}
	})
}
