package upstream_test

import (
	"slices"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/proxy/upstream"
)

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

func TestHubsThatLoseAnApiserverTogetherDoNotComeBackInStep(t *testing.T) {
	var all []time.Duration
	for range 20 {
		inCloud(t, idle, local(), func(t *testing.T, c *cloud) {
			c.mustGet(pods)
			c.networks[0].set(refuse)
			c.mustFail(pods, bound)
			lost := time.Now()
			c.networks[0].set(func(n *fakeNetwork) { n.refusing = false })
			if err := c.upstream.WaitUp(t.Context()); err != nil {
				t.Fatal(err)
			}
			all = append(all, time.Since(lost))
		})
	}
	first, last := slices.Min(all), slices.Max(all)
	if last-first < upstream.DefaultProbe/5 || last > upstream.DefaultProbe+100*time.Millisecond { // by chance once in 10^12 runs
		t.Errorf("they came back after %v to %v, want them spread over %v", first, last, upstream.DefaultProbe)
	}
}

func TestManyIdleWatchesCostNoMoreThanOne(t *testing.T) {
	for _, protocol := range []string{"by HTTP/2", "by HTTP/1.1"} {
		t.Run(protocol, func(t *testing.T) {
			inCloud(t, idle, local(), func(t *testing.T, c *cloud) {
				for range 50 {
					_, shut := c.open(pods + "?watch=true")
					defer shut()
					time.Sleep(137 * time.Millisecond) // not in step
				}
				time.Sleep(time.Minute)
				before := c.sent()
				time.Sleep(time.Hour)
				if perMinute := (c.sent() - before) / 60; perMinute > 1000 {
					t.Errorf("they cost %d bytes a minute each way", perMinute)
				}
				c.networks[0].set(func(n *fakeNetwork) { n.hole = true })
				cut, lost := time.Now(), c.upstream.Lost(t.Context())
				<-lost
				if took := time.Since(cut); took > upstream.DefaultIdlePing+bound {
					t.Errorf("the loss was noticed after %v", took)
				}
			})
		})
	}
}
