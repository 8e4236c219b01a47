package nodestate

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/imagepull/engine/diskspace"
	"github.com/edgehub-io/edgehub/ota/api"
)

func options(t *testing.T) Options {
	return Options{
		Name: "gate-17", Version: "v1", Root: t.TempDir(),
		Cloud: func() (bool, time.Time) { return false, time.Unix(100, 0) },
		Ready: func() error { return nil }, Unregistered: func() string { return "" },
		Cache: func() (int, int64, string) { return 3, 4096, "" },
		Certificates: func() []api.Certificate {
			return []api.Certificate{{Name: "node", Expires: time.Unix(200, 0)}}
		},
		Traffic: func() api.Traffic { return api.Traffic{Sent: 5} },
		Missing: func() []api.Missing { return []api.Missing{{Workload: "camera"}} },
	}
}

func TestState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(t)
		got := New(o).State()
		if len(got.Disks) != 1 || got.Disks[0].Total == 0 || got.Disks[0].Path != o.Root || !reflect.DeepEqual(got.Disks[0].Holds, []string{"hub"}) {
			t.Errorf("disks are %+v", got.Disks)
		}
		got.Disks = nil
		want := api.NodeState{
			Node: "gate-17", Version: "v1", Time: time.Now(), Since: time.Unix(100, 0), Cache: api.CacheHealth{Views: 3, Bytes: 4096},
			Certificates: []api.Certificate{{Name: "node", Expires: time.Unix(200, 0)}}, Traffic: api.Traffic{Sent: 5},
			Missing: []api.Missing{{Workload: "camera"}},
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
		o.Ready = func() error { return errors.New("the hub is stopping") }
		o.Certificates = func() []api.Certificate { return nil }
		o.Unregistered = func() string { return "no Node" }
		if got := New(o).State(); got.Ready != "the hub is stopping" || got.Unregistered != "no Node" || got.Certificates == nil || len(got.Certificates) != 0 {
			t.Errorf("got %+v", got)
		}
	})
}

func TestDisks(t *testing.T) {
	o := options(t)
	here, err := diskspace.At(o.Root)
	if err != nil {
		t.Fatal(err)
	}
	other := diskspace.Space{ID: [2]int32{-1, -1}, Free: 1, Total: 2}
	tests := map[string]struct {
		space diskspace.Space
		err   error
		want  []api.Disk
	}{
		"the same":                   {here, nil, []api.Disk{{Holds: []string{"hub", "images"}, Path: o.Root}}},
		"another":                    {other, nil, []api.Disk{{Holds: []string{"hub"}, Path: o.Root}, {Holds: []string{"images"}, Path: "/images", Free: 1, Total: 2}}},
		"containerd does not answer": {other, errors.New("no"), []api.Disk{{Holds: []string{"hub"}, Path: o.Root}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := o
			o.Images = func(context.Context) (string, diskspace.Space, error) { return "/images", test.space, test.err }
			got := New(o).State()
			if !got.Pulls {
				t.Error("the hub pulls images")
			}
			for i := range got.Disks {
				if got.Disks[i].Path == o.Root { // other tests write there
					got.Disks[i].Free, got.Disks[i].Total = 0, 0
				}
			}
			if !reflect.DeepEqual(got.Disks, test.want) {
				t.Errorf("got %+v, want %+v", got.Disks, test.want)
			}
		})
	}
}

func TestDisksAreLookedAtTwiceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, looks := options(t), 0
		o.Images = func(context.Context) (string, diskspace.Space, error) { looks++; return "", diskspace.Space{}, nil }
		n := New(o)
		for range 120 {
			n.State()
			time.Sleep(time.Second)
		}
		if looks != 4 {
			t.Errorf("%d looks in two minutes, want 4", looks)
		}
	})
}
