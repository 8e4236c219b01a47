// Package soak_test lets one hub serve a node with 200 pods for a long time, over a link
// that is cut again and again, and looks whether it stays as it was: its memory, its
// goroutines, its connections, its disk, and what its clients see.
//
// The apiserver and the hub are real, each a process of its own. What stands for the pods
// and the kubelet are client-go's reflectors and plain HTTP clients: each pod has a token
// bound to it and connections of its own. No container runs.
//
// DURATION sets how long it takes, 3m by default; CUT_EVERY how often the link
// is cut.
package soak_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/hubproc"
)

const (
	pods     = 200
	accounts = 10 // service accounts that the pods share
)

func TestTheHubStaysAsItIs(t *testing.T) {
	length := fromEnvironment(t, "DURATION", 3*time.Minute)
	every := fromEnvironment(t, "CUT_EVERY", 30*time.Second)
	w := newWorld(t)
	w.fill()
	w.startFollowers()

	began := time.Now()
	cuts := newCuts(t, w.hub.Link, every)
	s := newSamples(w, cuts, began)
	r := newRequests(w, cuts)
	together(t, length, cuts.run, w.change, r.run, w.leave, s.run)

	w.settle()
	r.eventsArrived()
	w.rare()
	t.Logf("%s with %d watches, the link was cut %d times\n%s%s%s", length, len(w.followers), cuts.count(), s.table(), r.summary(), w.summary())
	s.flat(every)
	s.idle()
	w.problems.report(t)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	programs, err := hubproc.Programs("../..")
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.Start(t.Context(), cluster.Options{
		Log: t.Output(), APIServerArgs: []string{"--event-ttl=24h"}, // they are looked for at the end
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	hub := hubproc.New(t, hubproc.Options{
		Binary: filepath.Join(programs, "edgehub"), Server: c.ServerURL(),
		// As on a node, where nobody changes them.
		Args: []string{"--reconnect-jitter=2s", "--log-level=info", "--container-runtime-endpoint="},
	})
	hub.IdentifyAs(c, "system:nodes")
	w := &world{t: t, cluster: c, hub: hub, admin: adminClient(t, c), problems: newProblems()}
	w.makeNode()
	hub.Start()
	return w
}

func fromEnvironment(t *testing.T, name string, otherwise time.Duration) time.Duration {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		return otherwise
	}
	d, err := time.ParseDuration(value)
	if err != nil || d <= 0 {
		t.Fatalf("%s=%q: want a duration, such as 30m", name, value)
	}
	return d
}
