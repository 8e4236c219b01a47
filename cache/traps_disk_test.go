package cache

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// kubelet's watches outlive the hub: it opens them where they were. What the hub has lost by then it has to find out, or
// the node boots with it one day.
func TestABootAfterTheFileWasLostUnderOpenWatches(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, killed string){
		"a kill, and the last four seconds": func(*testing.T, string) {},
		"a file that is set aside": func(t *testing.T, killed string) {
			for _, name := range []string{"cache.log", "cache.index"} {
				if err := os.WriteFile(filepath.Join(killed, name), bytes.Repeat([]byte("spoilt"), 1000), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		},
		"a file that is gone": func(t *testing.T, killed string) {
			if err := errors.Join(os.RemoveAll(killed), os.Mkdir(killed, 0o700)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		bubble(t, name, func(t *testing.T) {
			l, dir := newEventLog(100), filepath.Join(t.TempDir(), "cache")
			killed := dir + ".killed"
			for _, name := range []string{"a", "b", "c"} {
				l.happens("ADDED", name)
			}
			start := func(dir string) (*Cache, func()) {
				c := openCache(t, dir, l.upstream)
				c.views.Boot = "the first"
				return c, runCache(t, c)
			}
			c, stop := start(dir)
			kubelet := startReflector(t, c, "")
			time.Sleep(time.Minute)
			if err := os.CopyFS(killed, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			l.happens("MODIFIED", "a")
			l.happens("DELETED", "b")
			time.Sleep(4 * time.Second)
			kubelet.end()
			stop()
			lose(t, killed)
			c, stop = start(killed)
			kubelet = startReflector(t, c, kubelet.version)
			time.Sleep(time.Minute)
			l.happens("MODIFIED", "c")
			time.Sleep(2 * time.Minute)
			l.goAway()
			time.Sleep(5 * time.Second)
			kubelet.end()
			stop()

			c = startIn(t, killed, l.upstream) // after a boot
			expect(t, c, "offline", urlPods, described(t, []byte(l.state())))
			for name, want := range map[string]string{"a": "a=104", "b": "404", "c": "c=106"} {
				expect(t, c, "offline", modelURL(name), want)
			}
		})
	}
}

// At whatever instant the hub is killed, and whatever part of the last commit is on disk: a GET shows nothing older than a
// LIST, and nothing that it says is gone.
func TestAGetIsNeverOlderThanAListAfterAKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, dir := newEventLog(100), filepath.Join(t.TempDir(), "cache")
		l.happens("ADDED", "a")
		l.happens("ADDED", "b")
		c := openCache(t, dir, l.upstream)
		runCache(t, c)
		startReflector(t, c, "")
		away := newUpstream()
		away.goAway()
		compared, before := 0, int64(0)
		for i := range 60 {
			time.Sleep(300 * time.Millisecond)
			name := []string{"a", "b"}[i%2]
			l.happens([]string{"MODIFIED", "MODIFIED", "DELETED", "ADDED"}[i/2%4], name)
			if i%3 == 0 {
				get(t, c, modelURL(name))
			}
			if i%5 == 0 {
				get(t, c, urlPods)
			}
			synctest.Wait()
			size := sizeOf(t, dir)
			for lost := range int64(4) { // quarters of what was written since
				if lost > 0 && size <= before {
					break
				}
				killed := filepath.Join(t.TempDir(), "cache")
				err := os.CopyFS(killed, os.DirFS(dir))
				if err := errors.Join(err, os.Truncate(filepath.Join(killed, "cache.log"), size-(size-before)*lost/4)); err != nil {
					t.Fatal(err)
				}
				c, stop := runIn(t, killed, away)
				list := get(t, c, urlPods)
				for _, name := range []string{"a", "b"} {
					compared += checkNotOlder(t, name, list, get(t, c, modelURL(name)))
				}
				stop()
			}
			before = size
		}
		if compared < 50 {
			t.Errorf("%d objects were read beside a list: this test shows nothing", compared)
		}
	})
}

func sizeOf(t *testing.T, dir string) int64 {
	t.Helper()
	info, err := os.Stat(filepath.Join(dir, "cache.log"))
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// checkNotOlder compares a GET with a LIST of the same instant. It returns 1 if both have something to say.
func checkNotOlder(t *testing.T, name, list, got string) int {
	t.Helper()
	version, members, ok := strings.Cut(list, ":")
	if !ok {
		return 0
	}
	at, _ := strconv.Atoi(version)
	listed, read := -1, -1
	for _, m := range strings.Fields(members) {
		if v, ok := strings.CutPrefix(m, name+"="); ok {
			listed, _ = strconv.Atoi(v)
		}
	}
	if v, ok := strings.CutPrefix(got, name+"="); ok {
		read, _ = strconv.Atoi(v)
	}
	switch {
	case read >= 0 && listed >= 0 && read < listed, read >= 0 && listed < 0 && read <= at, got == "404" && listed > at:
		t.Errorf("GET of %s is %q, and the list %q", name, got, list)
	}
	return 1
}

// A bit that flips costs at most the object that it is part of, and brings nothing back. SEEDS=61 flips each bit.
func TestABitThatFlips(t *testing.T) {
	flipBits(t, func(where, url, got, want string, _ bool) {
		if got != want && got != "403" && got != "503" {
			t.Errorf("%s: %s is %q, want %q", where, url, got, want)
		}
	})
}

func TestABitThatFlipsOutsideOfObjectsCostsNothing(t *testing.T) {
	flipBits(t, func(where, url, got, want string, inObject bool) {
		if got != want && !inObject {
			t.Errorf("%s: %s is %q, want %q", where, url, got, want)
		}
	})
}

// flipBits flips bits of a hub's files, and reads what they then have.
func flipBits(t *testing.T, check func(where, url, got, want string, inObject bool)) {
	t.Helper()
	const stride, sumBefore = 61, 4 // bytes of the checksum of an object
	seeds, err := strconv.Atoi(cmp.Or(os.Getenv("SEEDS"), "1"))
	if err != nil {
		t.Fatal(err)
	}
	u, dir := newUpstream(), filepath.Join(t.TempDir(), "cache")
	c, stop := runIn(t, dir, u)
	u.shows("100", podJSON("a", "50"), podJSON("b", "51"), podJSON("c", "52"), podJSON("d", "53"))
	get(t, c, urlPods)
	u.onText("get", http.StatusOK, podJSON("b", "110"))
	get(t, c, urlPodB)
	u.onText("get", http.StatusForbidden, "{}")
	get(t, c, urlPodC)
	u.onText("delete", http.StatusOK, success)
	ask(t.Context(), t, c, http.MethodDelete, urlPodA)
	stop()
	u.goAway()
	want := answers{urlPods: "100: a=50 b=51 c=52 d=53", urlPodA: "404", urlPodB: "b=110", urlPodC: "403", urlInNS + "/d": "d=53"}
	files := map[string][]byte{"cache.log": nil}
	for name := range files {
		if files[name], err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, whole := range files {
		objects := regexp.MustCompile(`\{"metadata":[^}]*\}\}`).FindAllIndex(whole, -1)
		for bit := 0; bit < 8*len(whole); bit++ {
			if bit%stride >= seeds {
				continue
			}
			at := bit / 8
			for other, whole := range files {
				spoilt := bytes.Clone(whole)
				if other == name {
					spoilt[at] ^= 1 << (bit % 8)
				}
				if err := os.WriteFile(filepath.Join(dir, other), spoilt, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			inObject := slices.ContainsFunc(objects, func(of []int) bool { return of[0]-sumBefore <= at && at < of[1] })
			w := &trapRig{T: t, Cache: openCache(t, dir, u)}
			for url, one := range want {
				check(fmt.Sprintf("%s, bit %d of byte %d", name, bit%8, at), url, w.reads(url), one, inObject)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// The log is written anew while a slow client reads a list from it, and 200 updates come a second.
func TestALogThatIsWrittenAnewUnderAReaderAndUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pods, updates, perSecond = 800, 4800, 200
		large := func(i, version int) string {
			return podJSON(fmt.Sprintf("p%03d", i), strconv.Itoa(version), strings.Repeat("x", 4000))
		}
		all := make([]string, pods)
		for i := range all {
			all[i] = large(i, i+1)
		}
		u, dir := newUpstream(), filepath.Join(t.TempDir(), "cache")
		u.shows("1000", all...)
		c, stop := runIn(t, dir, u)
		want := get(t, c, urlPods)
		time.Sleep(5 * time.Second)
		u.goAway()
		res, err := c.RoundTrip(newRequest(t.Context(), http.MethodGet, urlPods))
		if err != nil {
			t.Fatal(err)
		}
		slow := make([]byte, 10)
		if _, err := io.ReadFull(res.Body, slow); err != nil {
			t.Fatal(err)
		}
		before, err := os.Stat(filepath.Join(dir, "cache.log"))
		if err != nil {
			t.Fatal(err)
		}
		u.comeBack()
		w := startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=1000")
		feed := <-u.feeds
		for n := range updates {
			i := n % pods
			all[i] = large(i, 1001+n)
			send(t, feed, `{"type":"MODIFIED","object":`+all[i]+"}\n")
			if time.Sleep(time.Second / perSecond); n != updates/2 {
				continue
			}
			rest, err := io.ReadAll(res.Body)
			if err := errors.Join(err, res.Body.Close()); err != nil {
				t.Fatalf("the slow client: %v", err)
			}
			if got := described(t, append(slow, rest...)); got != want {
				t.Errorf("the slow client reads %.80q, want %.80q", got, want)
			}
		}
		if now, err := os.Stat(filepath.Join(dir, "cache.log")); err != nil || os.SameFile(before, now) {
			t.Fatalf("the log was not written anew: this test shows nothing (%v)", err)
		}
		time.Sleep(5 * time.Second)
		w.stop()
		<-w.done
		if n := bytes.Count(w.body.Bytes(), []byte(`"MODIFIED"`)); n != updates {
			t.Errorf("the watch got %d events, want %d", n, updates)
		}
		u.goAway()
		want = described(t, []byte(podsJSON(strconv.Itoa(1000+updates), all...)))
		for range 2 {
			if got := get(t, c, urlPods); got != want {
				t.Errorf("offline: %.80q, want %.80q", got, want)
			}
			stop()
			c, stop = runIn(t, dir, u)
		}
	})
}
