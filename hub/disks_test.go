package hub

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

func TestDisks(t *testing.T) {
	root := t.TempDir()
	here, err := diskspace.At(root)
	if err != nil {
		t.Fatal(err)
	}
	other := diskspace.Space{ID: [2]int32{-1, -1}, Free: 1, Total: 2}
	tests := map[string]struct {
		space diskspace.Space
		err   error
		want  []api.Disk
	}{
		"the same":                   {here, nil, []api.Disk{{Holds: []string{"hub", "images"}, Path: root}}},
		"another":                    {other, nil, []api.Disk{{Holds: []string{"hub"}, Path: root}, {Holds: []string{"images"}, Path: "/images", Free: 1, Total: 2}}},
		"containerd does not answer": {other, errors.New("no"), []api.Disk{{Holds: []string{"hub"}, Path: root}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := &disks{root: root, images: func(context.Context) (string, diskspace.Space, error) { return "/images", test.space, test.err }}
			got := d.look()
			for i := range got {
				if got[i].Path == root { // other tests write there
					got[i].Free, got[i].Total = 0, 0
				}
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestDisksAreLookedAtTwiceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		d := &disks{root: t.TempDir(), images: func(context.Context) (string, diskspace.Space, error) { looks++; return "", diskspace.Space{}, nil }}
		for range 120 {
			d.look()
			time.Sleep(time.Second)
		}
		if looks != 4 {
			t.Errorf("%d looks in two minutes, want 4", looks)
		}
	})
}
