package view

import (
	"errors"
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	wal "github.com/edgehub-io/edgehub/cache/log"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/wire"
)

const enough = 256 << 20 // bytes, of all views

// newTestViews returns the views in a folder. Nothing is written to it unless the test flushes
// the disk.
func newTestViews(t *testing.T, dir string, most int64) *Views {
	t.Helper()
	disk, err := wal.New(dir, wal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := New(Options{
		Disk: disk, Max: most, Log: slog.New(slog.DiscardHandler),
		Evicted: func() {}, StoreRestored: func(query.UserResource) {}, Damaged: func(error) {},
	})
	l := NewLogState(s)
	if err := disk.Open(l); err != nil {
		t.Fatal(err)
	}
	l.Opened()
	t.Cleanup(func() {
		if err := disk.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// reopened closes the file of views, and returns what another process reads from it.
func reopened(t *testing.T, s *Views, dir string) *loaded {
	t.Helper()
	disk, err := wal.New(dir, wal.Options{})
	if err := errors.Join(err, s.Disk.Flush(), s.Disk.Close()); err != nil {
		t.Fatal(err)
	}
	read := NewLogState(New(s.Options))
	if err := disk.Open(read); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := disk.Close(); err != nil {
			t.Error(err)
		}
	})
	return read.loading
}

// keyOfPods is the key of a user's view of all pods.
func keyOfPods(user string) query.Key {
	return query.Key{User: user, Version: "v1", Resource: "pods"}
}

// newPodsView returns the node's view of all pods.
func newPodsView(t *testing.T) *View {
	t.Helper()
	v := newTestViews(t, t.TempDir(), enough).Acquire(keyOfPods(query.NodeUser))
	t.Cleanup(v.Release)
	return v
}

// barePod is a pod in protobuf.
func barePod(t *testing.T, name, version string, uid ...string) []byte {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, ResourceVersion: version}}
	for _, u := range uid {
		p.UID = types.UID(u)
	}
	b, err := p.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// fillPods lists the view: name → resourceVersion.
func fillPods(t *testing.T, v *View, began, version string, consistent bool, members map[string]string) CommitResult {
	t.Helper()
	b := v.NewBuilder(Began{version: began}, consistent, wire.Protobuf)
	defer b.End()
	for name, rv := range members {
		if err := b.Add("ns/"+name, rv, "", barePod(t, name, rv)); err != nil {
			t.Fatal(err)
		}
	}
	b.Meta = wire.ListMeta{TypeMeta: wire.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{ResourceVersion: version}}
	result, _ := b.commit(version)
	return result
}

// apply applies an event of a watch that has shown everything up to a position.
func (v *View) apply(position string, ev *Event) Applied {
	f := v.NewFeed(v.Began())
	defer f.Close()
	f.Open(position, nil)
	return f.Apply(ev, true)
}
