package cache

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

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

func TestTheDifferenceOfTwoListsAsEvents(t *testing.T) {
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
			v := newTestView(t)
			list := func(version string, objects []object) *view.Stage {
				st := v.NewStage("", true)
				t.Cleanup(st.End)
				for _, o := range objects {
					if err := st.Add("ns/"+o.name, o.version, pod(t, o.name, o.version, o.uid)); err != nil {
						t.Fatal(err)
					}
				}
				st.Meta = podList
				st.Meta.ResourceVersion = version
				return st
			}
			list("10", old).Commit("10")
			snap, err := v.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			defer snap.Close()
			got, err := difference(snap, list("20", test.now))
			if err != nil {
				t.Fatal(err)
			}
			if got := events(t, got); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// What has come and gone while the apiservers forgot a watch's version is in no event, as it
// is in no list. A watch that is behind what the view has seen of it has to list.
func TestADifferenceLeavesOutWhatCameAndWent(t *testing.T) {
	tests := map[string]struct{ seen, want, behind string }{
		"no watch has seen it":         {"", "BOOKMARK:=130", "BOOKMARK:=130"},
		"one has seen it come":         {podEvent("ADDED", "b", "110"), "ADDED:b=110 DELETED:b=110 BOOKMARK:=130", "ERROR:410"},
		"one has seen it come, and go": {podEvent("ADDED", "b", "110") + podEvent("DELETED", "b", "120"), "ADDED:b=110 DELETED:b=120 BOOKMARK:=130", "ERROR:410"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u, c := startListed(t, "100", podJSON("a", "50"))
				var watchers []*watcher
				var feeds []*io.PipeWriter
				for range 2 {
					watchers = append(watchers, startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=100"))
					feeds = append(feeds, <-u.feeds)
				}
				if test.seen != "" {
					send(t, feeds[0], test.seen)
				}
				synctest.Wait()
				u.shows("130", podJSON("a", "50"))
				u.on("watch", func(r *http.Request) *http.Response {
					if r.URL.Query().Get("resourceVersion") != "130" {
						time.Sleep(time.Second) // nobody finds the list to be as old as the loss
						return respond(http.StatusGone, "{}")
					}
					return u.open(r)
				})
				for _, feed := range feeds {
					feed.Close()
				}
				time.Sleep(10 * time.Second)
				for i, want := range []string{test.want, test.behind} {
					if got := watchers[i].heard(t); got != want {
						t.Errorf("watch %d heard %q, want %q", i, got, want)
					}
				}
			})
		})
	}
}
