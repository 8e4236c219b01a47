package cache

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// watchedModel is a modelWorld whose client watches all pods. What the watch shows comes late.
type watchedModel struct {
	*modelWorld
	history []map[string]modelPod // by version
	late    []string              // events that the watch has not shown yet
	lateAt  []int                 // their versions
	watcher *watcher
	feed    *io.PipeWriter
	floor   map[string]int // the latest version of which the client was shown something of a pod
	byHub   int            // answers that no apiserver has given
}

// note keeps what a step has changed.
func (w *watchedModel) note() {
	before := w.history[len(w.history)-1]
	for v := len(w.history); v <= w.version; v++ {
		w.history = append(w.history, maps.Clone(w.pods))
	}
	for _, name := range modelNames {
		old, was := before[name]
		now, is := w.pods[name]
		var event string
		switch {
		case was == is && old == now:
			continue
		case !is:
			old.version = w.version
			event = `{"type":"DELETED","object":` + old.json(name) + "}\n"
		default:
			event = fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", map[bool]string{true: "MODIFIED", false: "ADDED"}[was], now.json(name))
		}
		w.late, w.lateAt = append(w.late, event), append(w.lateAt, w.version)
	}
}

// shown notes that the client was shown the state of pods at a version.
func (w *watchedModel) shown(version int, names ...string) {
	for _, name := range names {
		w.floor[name] = max(w.floor[name], version)
	}
}

// open begins a watch anew, from a list.
func (w *watchedModel) open(t *testing.T) {
	t.Helper()
	if w.watcher != nil {
		w.watcher.stop()
		<-w.watcher.done
	}
	get(t, w.cache, urlPods)
	w.shown(w.version, modelNames...)
	w.late, w.lateAt = nil, nil
	w.watcher = startWatch(t.Context(), t, w.cache, fmt.Sprintf("%s&resourceVersion=%d", urlWatch, w.version))
	w.feed = <-w.up.feeds
}

// show has the watch show the next event, and perhaps a bookmark after it.
func (w *watchedModel) show(t *testing.T, bookmark bool) {
	t.Helper()
	if len(w.late) > 0 {
		send(t, w.feed, w.late[0])
		for _, name := range modelNames {
			if strings.Contains(w.late[0], fmt.Sprintf(`"name":%q`, name)) {
				w.shown(w.lateAt[0], name)
			}
		}
		w.late, w.lateAt = w.late[1:], w.lateAt[1:]
	}
	if bookmark {
		at := w.version
		if len(w.lateAt) > 0 {
			at = w.lateAt[0] - 1
		}
		send(t, w.feed, podBookmark(fmt.Sprint(at), false))
	}
	synctest.Wait()
}

// catchUp has the watch show all within the time that it has for what was shown at no version.
func (w *watchedModel) catchUp(t *testing.T) {
	t.Helper()
	for range 2 {
		time.Sleep(time.Minute)
		for len(w.late) > 0 {
			w.show(t, false)
		}
		w.show(t, true)
	}
}

// judge fails the test unless pods are as they were at some time after the client was last shown them.
func (w *watchedModel) judge(t *testing.T, got string, names []string, did []string) {
	t.Helper()
	for _, name := range names {
		p, has := modelPod{}, false
		for _, one := range strings.Fields(got) {
			if rest, ok := strings.CutPrefix(one, name+"="); ok {
				has = true
				fmt.Sscanf(rest, "%d", &p.version) //nolint:errcheck // 0 is wrong, too
			}
		}
		if !slices.ContainsFunc(w.history[w.floor[name]:], func(at map[string]modelPod) bool {
			now, is := at[name]
			return is == has && now.version == p.version
		}) {
			t.Fatalf("%s is served as %q, and was shown at %d, after %v", name, got, w.floor[name], did)
		}
	}
}

// any reads with resourceVersion=0, and judges what no apiserver has answered.
func (w *watchedModel) any(t *testing.T, pod string, did []string) {
	t.Helper()
	gets, lists := w.up.count("get"), w.up.count("list")
	url, names := modelURL(pod), []string{pod}
	if pod == "" {
		url, names = urlPods, modelNames
	}
	got := get(t, w.cache, url+anyVersion)
	if w.up.count("get") > gets || w.up.count("list") > lists {
		w.shown(w.version, names...)
		return
	}
	w.byHub++
	w.judge(t, got, names, did)
}

// Whatever the client reads, writes and is shown by its watch, which comes late: what the hub answers
// by itself is never older than what the client was shown.
func TestNoSequenceOfStepsMakesAWatchAnswerWhatIsOlderThanWhatWasSeen(t *testing.T) {
	byHub := 0
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &watchedModel{modelWorld: newModelWorld(t, seed), floor: map[string]int{}}
				w.cache.opts.ServeWatched = true
				for range w.version + 1 {
					w.history = append(w.history, map[string]modelPod{})
				}
				var did []string
				w.open(t)
				for range 80 {
					pod := modelNames[w.rand.IntN(len(modelNames))]
					n := w.rand.IntN(len(modelSteps) + 10)
					var name string
					switch n -= len(modelSteps); {
					case n >= 8:
						name = "catch up"
						w.catchUp(t)
					case n >= 5:
						name = "show with a bookmark"
						w.show(t, true)
					case n >= 2:
						name = "show"
						w.show(t, false)
					case n == 1 && w.rand.IntN(4) == 0:
						name = "open"
						w.open(t)
					case n >= 0:
						name = "nothing"
					default:
						step := modelSteps[n+len(modelSteps)]
						if name = step.name; name == "restart" {
							continue
						}
						red := w.pods
						step.do(t, w.modelWorld, pod)
						w.note()
						switch name {
						case "get", "delete":
							w.shown(w.version, pod)
						case "list":
							w.shown(w.version, modelNames...)
						case "list red":
							for _, one := range modelNames {
								if red[one].label == "red" {
									w.shown(w.version, one)
								}
							}
						}
					}
					did = append(did, name+" "+pod)
					w.any(t, pod, did)
					w.any(t, "", did)
				}
				byHub += w.byHub
				w.watcher.stop()
				<-w.watcher.done
			})
		})
	}
	if byHub < 1000 {
		t.Errorf("only %d answers are of the hub: this test shows little", byHub)
	}
	t.Logf("%d answers of the hub", byHub)
}
