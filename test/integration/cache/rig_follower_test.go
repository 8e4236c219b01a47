package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// follower keeps up with a query as an informer does: it lists, watches from there, and
// lists again where the watch ends since its version is too old. It notes what an
// informer would not mind, but should not be: events that come twice, objects that come,
// change or go though they are, or are not, there, and an object that takes the place of
// another of its name before that was deleted.
type follower struct {
	client       *client
	path, accept string
	stop         func()

	mu       sync.Mutex
	items    map[string]string // versions by name
	uids     map[string]string // by name
	version  string
	lists    int
	ends     int      // of watches, however they ended
	deleted  []string // names, in order
	problems []string
}

// follow starts a follower, and returns when it has listed.
func follow(t *testing.T, c *client, path, accept string) *follower {
	t.Helper()
	f := &follower{client: c, path: path, accept: accept}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { f.run(ctx, t) })
	f.stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	t.Cleanup(f.stop)
	poll.Until(t, patience, "the list of "+path, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.version != ""
	})
	return f
}

func (f *follower) run(ctx context.Context, t *testing.T) {
	for ctx.Err() == nil {
		f.mu.Lock()
		version := f.version
		f.mu.Unlock()
		if version == "" {
			f.list(ctx)
		} else {
			f.watch(ctx, t, version)
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (f *follower) list(ctx context.Context) {
	a := f.client.try(ctx, request{path: f.path, accept: f.accept})
	if a.status != http.StatusOK || a.err != nil {
		return
	}
	l, err := decodeList(a.body)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lists++
	if err != nil {
		f.problems = append(f.problems, err.Error())
		return
	}
	f.version, f.items, f.uids = l.version, map[string]string{}, map[string]string{}
	for key, version := range l.items {
		f.items[baseName(key)], f.uids[baseName(key)] = version, l.uids[key]
	}
}

func (f *follower) watch(ctx context.Context, t *testing.T, version string) {
	s, err := f.client.tryWatch(t, with(f.path, watchQuery+"&resourceVersion="+version), f.accept)
	if err != nil {
		return
	}
	defer s.stop()
	if s.status == http.StatusGone {
		f.mu.Lock()
		f.version = ""
		f.mu.Unlock()
	}
	if s.status != http.StatusOK {
		return
	}
	for {
		select {
		case e := <-s.events:
			if !f.take(e) {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// take takes an event; false: the watch has ended.
func (f *follower) take(e event) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.err != nil {
		f.ends++
		if !errors.Is(e.err, io.EOF) && !errors.Is(e.err, context.Canceled) {
			f.problems = append(f.problems, "the stream broke: "+e.err.Error())
		}
		return false
	}
	have, known := f.items[e.name]
	complain := func(format string, args ...any) {
		f.problems = append(f.problems, fmt.Sprintf("%s %s at %s: ", e.kind, e.name, e.version)+fmt.Sprintf(format, args...))
	}
	switch e.kind {
	case watch.Error:
		f.ends++
		if e.code == http.StatusGone {
			f.version = ""
		} else {
			complain("%s", e.raw)
		}
		return false
	case watch.Bookmark:
		f.version = e.version
		return true
	case watch.Added:
		if known {
			complain("it is there, at %s", have)
		}
		f.items[e.name], f.uids[e.name] = e.version, e.uid
	case watch.Modified, watch.Deleted:
		if uid := f.uids[e.name]; !known {
			complain("it is not there")
		} else if e.uid != uid {
			complain("it is another object, with UID %s; that one was never added, and %s never deleted", e.uid, uid)
		}
		f.items[e.name], f.uids[e.name] = e.version, e.uid
	}
	if e.kind == watch.Deleted {
		delete(f.items, e.name)
		delete(f.uids, e.name)
		f.deleted = append(f.deleted, e.name)
	}
	// Deletions that a list has shown may have a version that does not lead on.
	if before(e.version, f.version) || before(e.version, have) || e.version == f.version && e.kind != watch.Deleted {
		complain("it is not newer than what came before, %s", f.version)
	}
	f.version = e.version
	return true
}

// before reports whether version a comes before b.
func before(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	return errX == nil && errY == nil && x < y
}

// reaches waits until the follower has what the apiserver has.
func (f *follower) reaches(t *testing.T, direct *client) {
	t.Helper()
	reason := ""
	defer func() {
		if t.Failed() {
			t.Logf("%s: %s", f.path, reason)
		}
	}()
	poll.Until(t, patience, "the follower of "+f.path+" has what the apiserver has", func() bool {
		want := map[string]string{}
		for key, version := range direct.get(t, f.path, f.accept).listing(t).items {
			want[baseName(key)] = version
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if maps.Equal(f.items, want) {
			return true
		}
		reason = differences(f.items, want)
		return false
	})
}

// sound fails the test for what should not have been.
func (f *follower) sound(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, problem := range f.problems {
		t.Errorf("%s: %s", f.path, problem)
	}
}

func (f *follower) counts() (lists, ends int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lists, f.ends
}
