package relist

import (
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/edgehub-io/edgehub/cache/disk"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/store/writeback"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// emptyView returns the node's view of all pods. Nothing of it is written.
func emptyView(t *testing.T) *view.View {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	d, err := disk.Open(t.TempDir(), disk.Options{
		Store:     store.Options{Logger: log},
		Lost:      func(id store.ID, err error) { t.Errorf("%v is lost: %v", id, err) },
		Opened:    func(*store.Store, error) {},
		Committed: func(writeback.CommitStats) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	views := view.New(view.Options{
		Disk: d, Max: 1 << 20, Now: time.Now, Log: log, Evicted: func(*view.View) {}, Removed: func(*view.View) {},
	})
	v := views.Acquire(query.Key{User: query.NodeUser, Version: "v1", Resource: "pods", Representation: "protobuf"})
	t.Cleanup(v.Release)
	return v
}

// podWith is a pod in protobuf.
func podWith(t *testing.T, name, version, uid string) []byte {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, ResourceVersion: version, UID: types.UID(uid)}}
	b, err := p.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// events lists what is in a watch stream.
func events(t *testing.T, stream []byte) string {
	t.Helper()
	frames, err := wire.NewFrameReader(bytes.NewReader(stream), wire.Protobuf, wire.FrameOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for {
		f, err := frames.Next()
		if errors.Is(err, io.EOF) {
			return strings.Join(all, " ")
		}
		if err != nil || f.Err != nil {
			t.Fatal(err, f.Err)
		}
		all = append(all, fmt.Sprintf("%s:%s=%s", f.Type, f.Meta.Name, f.Meta.ResourceVersion))
	}
}

func TestDiff(t *testing.T) {
	type object struct{ name, version, uid string }
	old := []object{{"same", "5", "1"}, {"changed", "6", "2"}, {"gone", "7", "3"}, {"remade", "8", "4"}}
	tests := map[string]struct {
		now  []object
		want string
	}{
		"nothing has happened": {old, ""},
		"all of it": {
			[]object{{"same", "5", "1"}, {"changed", "16", "2"}, {"remade", "18", "5"}, {"new", "15", "6"}},
			"DELETED:gone=10 DELETED:remade=10 ADDED:new=15 MODIFIED:changed=16 ADDED:remade=18",
		},
		"everything is gone": {nil, "DELETED:changed=10 DELETED:gone=10 DELETED:remade=10 DELETED:same=10"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			v := emptyView(t)
			list := func(version string, objects []object) *view.Builder {
				b := v.NewBuilder("", true)
				t.Cleanup(b.End)
				for _, o := range objects {
					if err := b.Add("ns/"+o.name, o.version, podWith(t, o.name, o.version, o.uid)); err != nil {
						t.Fatal(err)
					}
				}
				b.Meta.TypeMeta = wire.TypeMeta{APIVersion: "v1", Kind: "PodList"}
				b.Meta.ResourceVersion = version
				return b
			}
			list("10", old).Commit("10")
			snap, err := v.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			defer snap.Close()
			got, err := diff(snap, list("20", test.now))
			if err != nil {
				t.Fatal(err)
			}
			if got := events(t, got); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}
