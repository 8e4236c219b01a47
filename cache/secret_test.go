package cache

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const (
	urlSecretA   = "/api/v1/namespaces/ns/secrets/a"
	urlOnlyA     = "/api/v1/namespaces/ns/secrets?fieldSelector=metadata.name%3Da"
	secretMarker = "cGxhbnRlZCBieSBhIHRlc3Q="
)

func secretJSON(name, version string) string {
	return fmt.Sprintf(`{"kind":"Secret","apiVersion":"v1","metadata":{"name":%q,"namespace":"ns","uid":"u-%s","resourceVersion":%q},"data":{"key":%q}}`, name, name, version, secretMarker)
}

func secretsJSON(version string, secrets ...string) string {
	list := podsJSON(version, secrets...)
	return string(bytes.Replace([]byte(list), []byte("PodList"), []byte("SecretList"), 1))
}

// filesWith returns the files of a folder that contain text.
func filesWith(t *testing.T, dir, text string) (found []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("files: %v, %v", files, err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte(text)) {
			found = append(found, filepath.Base(file))
		}
	}
	return found
}

// What is deleted in the cloud stays in no file for much longer than a day, though the hub is
// not restarted.
func TestADeletedSecretLeavesTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, dir := newUpstream(), t.TempDir()
		u.onText("list", http.StatusOK, secretsJSON("100", secretJSON("a", "50")))
		u.onText("get", http.StatusOK, secretJSON("a", "50"))
		c := startIn(t, dir, u)
		get(t, c, urlSecretA)
		get(t, c, urlOnlyA)
		startWatch(t.Context(), t, c, urlOnlyA+"&watch=true&resourceVersion=100")
		feed := <-u.feeds
		time.Sleep(10 * time.Minute)
		if got := filesWith(t, dir, secretMarker); len(got) != 1 {
			t.Fatalf("before it is deleted, %q have it: this test shows nothing", got)
		}
		send(t, feed, fmt.Sprintf(`{"type":"DELETED","object":%s}`+"\n", secretJSON("a", "110")))
		time.Sleep(25 * time.Hour)
		synctest.Wait()
		if got := filesWith(t, dir, secretMarker); len(got) > 0 {
			t.Errorf("a day after it was deleted, %q have it", got)
		}
	})
}

// podUsing is a pod of the node with a Secret as a volume.
func podUsing(secret, version string) string {
	return fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":"ns","uid":"u-p","resourceVersion":%q},`+
		`"spec":{"nodeName":"n","volumes":[{"name":"v","secret":{"secretName":%q}}]}}`, version, secret)
}

// volumeUsing is a volume whose driver gets a Secret from kubelet.
func volumeUsing(secret string) string {
	return fmt.Sprintf(`{"kind":"PersistentVolume","apiVersion":"v1","metadata":{"name":"pv","uid":"u-pv","resourceVersion":"40"},`+
		`"spec":{"csi":{"driver":"d","volumeHandle":"h","nodeStageSecretRef":{"namespace":"ns","name":%q}}}}`, secret)
}

// A Secret or ConfigMap that was read for a pod leaves the cache some hours after the pod has left the
// node, and not while anybody on the node may need it: nobody can tell how long the next outage is.
func TestSecretsLeaveWithThoseWhoNeedThem(t *testing.T) {
	t.Run("secrets", func(t *testing.T) { testLeavesWithThoseWhoNeedIt(t, "secrets", "Secret") })
	t.Run("configmaps", func(t *testing.T) { // are dropped as Secrets are
		testLeavesWithThoseWhoNeedIt(t, "configmaps", "ConfigMap", "its pod leaves", "its pod leaves, and it was read by GET", "its pod leaves, and kubelet is stopped")
	})
}

// testLeavesWithThoseWhoNeedIt plays these cases; none are all.
func testLeavesWithThoseWhoNeedIt(t *testing.T, resource, kind string, cases ...string) {
	const (
		urlNodePods = "/api/v1/pods?fieldSelector=spec.nodeName%3Dn"
		urlVolume   = "/api/v1/persistentvolumes/pv"
		urlAll      = "/api/v1/namespaces/ns/secrets"
		rounds      = 2*secretsUnread + time.Hour
		long        = 31 * 24 * time.Hour // views that nobody reads are dropped after 30 days
	)
	of := strings.NewReplacer("secrets", resource, "Secret", kind)
	type world struct {
		*testing.T
		*upstream
		*Cache
		dir     string
		pods    *io.PipeWriter // kubelet's watch
		kubelet *watcher
		restart func()
	}
	podLeaves := func(w *world) { send(w.T, w.pods, `{"type":"DELETED","object":`+podUsing("a", "110")+"}\n") }
	for name, tc := range map[string]struct {
		url    string        // "" is that of kubelet's watch
		user   string        // "" is the node
		stay   time.Duration // 0: rounds
		during func(*world)
		leaves bool
	}{
		"its pod leaves":                             {during: podLeaves, leaves: true},
		"its pod leaves, and it was read by GET":     {url: urlSecretA, during: podLeaves, leaves: true},
		"its pod stays":                              {stay: long, during: func(w *world) { get(w.T, w.Cache, of.Replace(urlSecretA)) }},
		"its pod leaves, and then the cloud is away": {during: func(w *world) { podLeaves(w); w.goAway() }},
		"its pod leaves, and kubelet is stopped":     {during: func(w *world) { podLeaves(w); w.kubelet.stop() }},
		"its pod leaves, and kubelet goes on to watch it": {during: func(w *world) {
			podLeaves(w)
			startWatch(w.Context(), w.T, w.Cache, of.Replace(urlOnlyA)+"&watch=true&resourceVersion=100")
		}},
		"its pod leaves, and a volume needs it":            {during: func(w *world) { podLeaves(w); get(w.T, w.Cache, urlVolume) }},
		"its pod leaves, and the hub was restarted, alone": {during: func(w *world) { podLeaves(w); w.restart() }},
		"a pod reads it with a token that is good":         {url: urlAll, user: "coredns", during: podLeaves},
		"a pod has read it by GET with such a token":       {url: urlSecretA, user: "coredns", during: podLeaves},
		"a pod's token is refused": {url: urlAll, user: "coredns", leaves: true, during: func(w *world) {
			w.on("review", reviewed(http.StatusUnauthorized, ""))
		}},
		"a pod's token is refused, and it was read by GET": {url: urlSecretA, user: "coredns", leaves: true, during: func(w *world) {
			w.on("review", reviewed(http.StatusUnauthorized, ""))
		}},
	} {
		if len(cases) > 0 && !slices.Contains(cases, name) {
			continue
		}
		bubble(t, name, func(t *testing.T) {
			w := &world{T: t, upstream: newUpstream(), dir: t.TempDir()}
			w.on("list", func(r *http.Request) *http.Response {
				if strings.HasSuffix(r.URL.Path, "/"+resource) {
					return respond(http.StatusOK, of.Replace(secretsJSON("100", secretJSON("a", "50"))))
				}
				return respond(http.StatusOK, podsJSON("100", podUsing("a", "60")))
			})
			w.on("get", func(r *http.Request) *http.Response {
				if r.URL.Path == urlVolume {
					return respond(http.StatusOK, volumeUsing("a"))
				}
				return respond(http.StatusOK, of.Replace(secretJSON("a", "50")))
			})
			w.Cache = openCache(t, w.dir, w.upstream)
			stop := runCache(t, w.Cache)
			w.restart = func() {
				time.Sleep(time.Minute)
				w.kubelet.stop()
				<-w.kubelet.done
				stop()
				w.Cache = startIn(t, w.dir, w.upstream)
			}
			get(t, w.Cache, urlNodePods)
			w.kubelet = startWatch(t.Context(), t, w.Cache, urlNodePods+"&watch=true&resourceVersion=100")
			w.pods = <-w.feeds
			ctx := t.Context()
			if tc.user != "" {
				ctx = as(ctx, tc.user)
			}
			want := "a=50"
			switch tc.url {
			case "": // kubelet's watch, which ends with the pod
				tc.url, want = of.Replace(urlOnlyA), "100: a=50"
				get(t, w.Cache, tc.url)
				itself := startWatch(t.Context(), t, w.Cache, tc.url+"&watch=true&resourceVersion=100")
				time.Sleep(time.Minute)
				itself.stop()
			case urlAll:
				want = "100: a=50"
				fallthrough
			default:
				tc.url = of.Replace(tc.url)
				ask(ctx, t, w.Cache, http.MethodGet, tc.url)
			}
			time.Sleep(time.Minute)
			tc.during(w)
			lists := w.count("list")
			time.Sleep(cmp.Or(tc.stay, rounds))
			if n := w.count("list") - lists; n > 0 {
				t.Errorf("the hub has listed again, %d times", n)
			}
			if tc.leaves {
				time.Sleep(25 * time.Hour) // it is overwritten
			}
			if w.upstream.isUp() {
				w.goAway()
			}
			held := filesWith(t, w.dir, secretMarker)
			got := ask(ctx, t, w.Cache, http.MethodGet, tc.url)
			if tc.leaves {
				if got == want || len(held) > 0 {
					t.Errorf("offline: %q; the files with it: %q", got, held)
				}
				return
			}
			if got != want || len(held) == 0 {
				t.Errorf("offline: %q, want %q; the files with it: %q", got, want, held)
			}
			if tc.stay > 0 {
				expect(t, w.Cache, "offline, by GET", of.Replace(urlSecretA), "a=50")
			}
		})
	}
}
