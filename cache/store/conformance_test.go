package store_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/cache/store"
)

// TestConformance holds for any store under the cache.
func TestConformance(t *testing.T) {
	for name, opts := range map[string]store.Options{
		"plain":     {},
		"encrypted": {Key: []byte("0123456789abcdef0123456789abcdef")},
	} {
		t.Run(name, func(t *testing.T) { conform(t, opts) })
	}
}

func conform(t *testing.T, opts store.Options) {
	for _, tt := range []struct {
		name string
		run  func(*suite)
	}{
		{"what was committed is read, also after another open", (*suite).readsBack},
		{"a view that is complete and empty is there", (*suite).emptyView},
		{"an update changes, adds and removes members", (*suite).update},
		{"a replacement leaves nothing of what was before", (*suite).replace},
		{"a replacement without bytes keeps what is stored", (*suite).replaceKeeps},
		{"an update from another version is refused, and nothing else is done", (*suite).conflict},
		{"an update may be committed again", (*suite).again},
		{"an update of a view that is not there is refused unless it is new", (*suite).newView},
		{"a stale view keeps its members and refuses updates", (*suite).stale},
		{"a member that is neither given nor stored is refused", (*suite).noObject},
		{"an object is stored once for all views and goes with the last", (*suite).shared},
		{"an object moves between views within a commit", (*suite).moves},
		{"views that read other bytes at the same version each keep their own", (*suite).otherBytes},
		{"the same version with other bytes is a change of the view", (*suite).changedBytes},
		{"bytes that are not given are those with the same sum", (*suite).notGiven},
		{"a check finds bytes that do not have their sum", (*suite).wrongSum},
		{"scopes are apart", (*suite).scopes},
		{"sizes are those of the members", (*suite).sizes},
		{"dropping is for good, and of what is not there no error", (*suite).drop},
		{"what is read is one version, whatever is committed meanwhile", (*suite).consistent},
		{"commits go on while a reader blocks", (*suite).blockedReader},
		{"an error of a callback ends the reading", (*suite).callbackErrors},
		{"tables keep order, and are committed with views", (*suite).tables},
		{"large tables are read to the end", (*suite).largeTable},
		{"invalid changes are refused", (*suite).invalid},
		{"after Close all is ErrClosed", (*suite).closed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &suite{T: t, opts: opts, dir: t.TempDir()}
			s.open()
			t.Cleanup(func() {
				if !t.Failed() && !s.isClosed {
					s.ok(s.Check())
				}
				s.ok(s.Close())
			})
			tt.run(s)
		})
	}
}

// suite is one test and its store.
type suite struct {
	*testing.T
	*store.Store
	opts     store.Options
	dir      string
	isClosed bool
}

func (s *suite) open() {
	s.Helper()
	var err error
	s.Store, err = store.Open(s.dir, s.opts)
	s.ok(err)
	if r := s.Recovery(); r.Cause != nil {
		s.Fatalf("a whole file was taken for a damaged one: %v", r.Cause)
	}
}

func (s *suite) reopen() {
	s.Helper()
	s.ok(s.Check())
	s.ok(s.Close())
	s.open()
}

func (s *suite) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *suite) wantErr(err, want error) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Fatalf("got error %v, want %v", err, want)
	}
}

// id returns the ID of a view with this name.
func id(name string) store.ID { return sha256.Sum256([]byte(name)) }

const scope = "v1/pods protobuf"

func header(version string) store.Header {
	return store.Header{
		Key: []byte("user, v1/pods, default"), Scope: scope, ResourceVersion: version, Complete: true,
		LastUsed: time.UnixMilli(1700000000123), Blob: []byte{0, 1, 2},
	}
}

// content returns bytes for an object, which depend on its name and version and have a few sizes.
func content(name, version string) []byte {
	sum := sha256.Sum256([]byte(name + "@" + version))
	return bytes.Repeat(sum[:], 1+int(sum[0])*2)
}

// objects returns objects from name, version, name, version, …
func objects(pairs ...string) []store.Object {
	var list []store.Object
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, store.NewObject(pairs[i], pairs[i+1], content(pairs[i], pairs[i+1])))
	}
	return list
}

func replacement(view, version string, put ...store.Object) store.Change {
	return store.Change{ID: id(view), Op: store.Replace, Header: header(version), Put: put}
}

func update(view, from, to string, put ...store.Object) store.Change {
	return store.Change{ID: id(view), Op: store.Update, From: from, Header: header(to), Put: put}
}

func (s *suite) commit(changes ...store.Change) {
	s.Helper()
	s.ok(s.Commit(store.Batch{Changes: changes}))
}

func (s *suite) refuse(want error, changes ...store.Change) {
	s.Helper()
	s.wantErr(s.Commit(store.Batch{Changes: changes}), want)
}

// has checks a view's version and members, with both ways of reading.
func (s *suite) has(view, version string, pairs ...string) {
	s.Helper()
	want := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		want[pairs[i]] = pairs[i+1]
	}
	v, members, err := s.Members(id(view))
	s.ok(err)
	got := map[string]string{}
	var names []string
	for _, m := range members {
		got[m.Name] = m.ResourceVersion
		names = append(names, m.Name)
	}
	if v.ResourceVersion != version || v.Members != len(want) || !maps.Equal(got, want) || !slices.IsSorted(names) {
		s.Fatalf("view %s is at %s with %d: %v; want %s with %v", view, v.ResourceVersion, v.Members, got, version, want)
	}
	s.streams(view, version, names, want)
}

func (s *suite) streams(view, version string, names []string, want map[string]string) {
	s.Helper()
	var streamed []string
	s.ok(streamObjects(s.Store, id(view), func(v store.View) error {
		if v.ResourceVersion != version {
			return fmt.Errorf("objects are at %s, want %s", v.ResourceVersion, version)
		}
		return nil
	}, func(o store.Object) error {
		streamed = append(streamed, o.Name)
		if o.ResourceVersion != want[o.Name] || !bytes.Equal(o.Bytes, content(o.Name, o.ResourceVersion)) {
			return fmt.Errorf("object %s@%s has other bytes", o.Name, o.ResourceVersion)
		}
		return nil
	}))
	if !slices.Equal(streamed, names) {
		s.Fatalf("got objects %v, want %v", streamed, names)
	}
}

func (s *suite) stored(name, version string) bool {
	s.Helper()
	want := content(name, version)
	got, err := readObject(s.Store, scope, store.NewObject(name, version, want))
	if errors.Is(err, store.ErrChanged) {
		return false
	}
	s.ok(err)
	if !bytes.Equal(got, want) {
		s.Fatalf("object %s@%s has other bytes", name, version)
	}
	return true
}
