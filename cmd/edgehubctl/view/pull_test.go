package view

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/ota/api"
)

var start = time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC)

const mib = 1 << 20

func TestRates(t *testing.T) {
	type step struct {
		at   time.Duration
		done int64
	}
	tests := map[string]struct {
		steps []step
		want  float64 // -1: none is known
	}{
		"nothing is known":                   {nil, -1},
		"one look is no rate":                {[]step{{0, 5}}, -1},
		"two looks at once are no rate":      {[]step{{0, 5}, {500 * time.Millisecond, 50}}, -1},
		"two looks":                          {[]step{{0, 0}, {2 * time.Second, 100}}, 50},
		"what was there before is not count": {[]step{{0, 1000}, {2 * time.Second, 1100}}, 50},
		"what is long ago does not count":    {[]step{{0, 0}, {5 * time.Second, 1000}, {10 * time.Second, 1000}, {15 * time.Second, 1000}, {20 * time.Second, 1000}}, 0},
		"a rate changes in ten seconds":      {[]step{{0, 0}, {10 * time.Second, 1000}, {20 * time.Second, 1010}}, 1},
		"two looks are enough, far apart":    {[]step{{0, 0}, {time.Hour, 3600}}, 1},
		"an attempt that begins anew":        {[]step{{0, 1000}, {2 * time.Second, 10}, {4 * time.Second, 30}}, 10},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var m meter
			for _, s := range tt.steps {
				m.add(start.Add(s.at), s.done)
			}
			got, ok := m.rate()
			if !ok {
				got = -1
			}
			if got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestAPictureOfAPull(t *testing.T) {
	p := meters{}
	states := func(done int64) *api.ImagePull {
		retry := start.Add(42 * time.Second)
		s := imagePull(api.Pulling,
			image("registry.example.com/shop/web:1.2", api.Pulling, done, 60*mib),
			image("registry.example.com/shop/init:7", api.Ready, 12*mib, 12*mib),
			image("registry.example.com/shop/log:3", api.Failed, 0, 0, func(i *api.Image) {
				i.LastError, i.NextRetry = "no such tag", &retry
			}),
			image("registry.example.com/shop/dns:1", api.Queued, 0, 0),
			image("registry.example.com/shop/dns:2", api.Pulling, 0, 0, func(i *api.Image) { i.Attempts = 3 }),
		)
		return &s
	}
	p.count(states(30*mib), start)
	p.count(states(36*mib), start.Add(2*time.Second))
	got := p.picture(states(36*mib), start.Add(2*time.Second), 80)
	want := `shop/web-1: 5 images of revision 7c9b
registry.example.com/shop/web:1.2
  [#############.........]  60%  36.0 of 60.0 MiB  3.0 MiB/s, 8s left
registry.example.com/shop/init:7
  ready, 12.0 MiB
registry.example.com/shop/log:3
  failed, again in 40s: no such tag
registry.example.com/shop/dns:1
  queued
registry.example.com/shop/dns:2
  pulling, attempt 3
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	p.count(states(36*mib), start.Add(20*time.Second))
	if got := p.picture(states(36*mib), start.Add(20*time.Second), 200); !strings.Contains(got, "[##################............]  60%  36.0 of 60.0 MiB  no bytes come in\n") {
		t.Errorf("got\n%s\nwant a wide bar that says that nothing comes in", got)
	}
	p.count(states(60*mib), start.Add(21*time.Second))
	if got := p.picture(states(60*mib), start.Add(21*time.Second), 20); !strings.Contains(got, "[#####] 100%  60.0 of 60.0 MiB  unpacking\n") {
		t.Errorf("got\n%s\nwant a narrow bar that is full", got)
	}
}

func TestABarIsFullOnlyAtTheEnd(t *testing.T) {
	for done, want := range map[int64]string{0: "[.....]   0%", 1: "[.....]   0%", 999: "[####.]  99%", 1000: "[#####] 100%", 2000: "[#####] 100%", -1: "[.....]   0%"} {
		i := image("a", api.Pulling, done, 1000)
		if got := bar(&i, 0); !strings.HasPrefix(got, want) {
			t.Errorf("%d of 1000: got %q, want %q", done, got, want)
		}
	}
}

// On a terminal, what the hub sends is drawn in place, and so is that it is gone.
func TestAPictureIsKeptUpToDate(t *testing.T) {
	var out bytes.Buffer
	size := func() (int, int) { return 80, 24 }
	v := &pictureView{screen: cli.NewScreen(&out, size), size: size, meters: meters{}}
	s := imagePull(api.Pulling, image("app:1", api.Queued, 0, 0))
	v.Note("")
	v.Show(&s, start)
	v.Note("the hub is gone")
	v.Note("")
	const blank = "\x1b[J"
	text := "shop/web-1: 1 image of revision 7c9b\napp:1\n  queued\n"
	want := blank + blank + text + "\x1b[3A\r" + blank + text + "the hub is gone\n" + "\x1b[4A\r" + blank + text
	if got := out.String(); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func imagePull(state api.PullState, images ...api.Image) api.ImagePull {
	return api.ImagePull{Namespace: "shop", Pod: "web-1", Revision: "7c9b", State: state, Images: images}
}

func image(name string, state api.PullState, done, total int64, change ...func(*api.Image)) api.Image {
	i := api.Image{Image: name, State: state, BytesDone: done, BytesTotal: total, Attempts: 1}
	for _, c := range change {
		c(&i)
	}
	return i
}
