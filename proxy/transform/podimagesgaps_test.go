package transform_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/edgehub-io/edgehub/proxy/transform"
)

// A watch that is held may not get what another one has brought to the cache right before the cloud was lost.
func TestAPodThatTheWatchDoesNotBringIsShownAllTheSame(t *testing.T) {
	for query, want := range map[string][]string{
		bookmarks:            {"MODIFIED 12 p app:v2", "BOOKMARK 10"}, // from where the client resumes, so that it misses nothing
		"resourceVersion=10": nil,
	} {
		t.Run(query, func(t *testing.T) {
			inBubbles(t, func(t *testing.T, mediaType string) {
				k := newKubeletRig(t, mediaType)
				k.set(appPod("p", "12", "app:v1"))
				k.watch(query)
				k.images.set("p", true)
				time.Sleep(2 * time.Second) //nolint:forbidigo // of synctest's clock
				k.want(want...)
			})
		})
	}
}

func TestAPodThatCannotBeGotIsTriedAgain(t *testing.T) {
	inBubbles(t, func(t *testing.T, mediaType string) {
		k := newKubeletRig(t, mediaType)
		k.set(appPod("p", "8", "app:v1"))
		k.fails = true
		sends := k.watch(bookmarks)
		k.images.set("p", true)
		time.Sleep(5 * time.Second) //nolint:forbidigo // of synctest's clock
		k.want()
		sends(watch.Modified, appPod("other", "11", "app:v1")) // others are not held up
		k.want("MODIFIED 11 other app:v1")
		k.mu.Lock()
		k.fails = false
		k.mu.Unlock()
		time.Sleep(time.Second) //nolint:forbidigo // of synctest's clock
		k.want("MODIFIED 8 p app:v2", "BOOKMARK 11")
	})
}

// An apiserver that does not answer, and many pods.
func TestPodsThatCannotBeGotHoldUpOthersForSeconds(t *testing.T) {
	inBubbles(t, func(t *testing.T, mediaType string) {
		k := newKubeletRig(t, mediaType)
		k.hangs = true
		for _, name := range []string{"a", "b", "c", "d"} {
			k.images.set(types.UID(name), true)
		}
		sends := k.watch(bookmarks)
		synctest.Wait()
		go sends(watch.Modified, appPod("other", "11", "app:v1"))
		time.Sleep(5 * time.Second) //nolint:forbidigo // of synctest's clock
		k.want("MODIFIED 11 other app:v1")
	})
}

func TestAPodThatIsGoneIsNotShown(t *testing.T) {
	inBubbles(t, func(t *testing.T, mediaType string) {
		k := newKubeletRig(t, mediaType)
		next := appPod("p", "9", "app:v1")
		next.UID = "successor"
		k.set(next)
		k.images.set("p", true)
		k.images.set("gone", true)
		k.watch(bookmarks)
		time.Sleep(time.Minute) //nolint:forbidigo // of synctest's clock
		k.want()
		if len(k.gets) != 2 {
			t.Errorf("%d GETs: %q", len(k.gets), k.gets)
		}
	})
}

// The program that is kubelet may watch other pods, too.
func TestOtherWatchesAreTransformedAndSayNothingByThemselves(t *testing.T) {
	for name, of := range map[string][2]string{
		"of a namespace":           {"ns", "fieldSelector=spec.nodeName%3Dn&"},
		"of labels":                {"", "fieldSelector=spec.nodeName%3Dn&labelSelector=a&"},
		"of a name":                {"", "fieldSelector=spec.nodeName%3Dn,metadata.name%3Dq&"},
		"of those without a node":  {"", "fieldSelector=spec.nodeName!%3Dn&"},
		"of all":                   {"", ""},
		"of what cannot be parsed": {"", "fieldSelector=x&"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubbles(t, func(t *testing.T, mediaType string) {
				k := newKubeletRig(t, mediaType)
				k.set(appPod("p", "8", "app:v1"))
				k.images.set("p", true)
				sends := k.watchOf(of[0], of[1]+bookmarks)
				k.want()
				sends(watch.Modified, appPod("p", "11", "app:v1"))
				k.want("MODIFIED 11 p app:v2")
			})
		})
	}
}

// kubelet without upgrades in place, which may read what the transform cannot.
func TestWhatNeedsNoChangePassesByteForByte(t *testing.T) {
	for _, mediaType := range []string{"application/cbor", "application/json"} {
		for _, verb := range []string{"list", "watch"} {
			t.Run(verb+" "+mediaType, func(t *testing.T) {
				const body = `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1", "metadata":{"name":"p","uid":"p"},"spec":null}}` + "\n"
				registry := prometheus.NewRegistry()
				next := errTripper(func(r *http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: http.StatusOK, Request: r, Header: http.Header{"Content-Type": {mediaType}}, Body: io.NopCloser(strings.NewReader(body))}, nil
				})
				k := &kubeletRig{t: t, mediaType: mediaType, userAgent: kubelet}
				k.transport = transform.New(next, transform.Options{
					IsNode:     func(context.Context) bool { return true },
					Transforms: []transform.Transform{transform.NewPodImages(newPodImages())}, Registerer: registry, Logger: slog.New(slog.DiscardHandler),
				})
				res := k.send(verb, bookmarks)
				defer res.Body.Close()
				if got, err := io.ReadAll(res.Body); res.StatusCode != http.StatusOK || string(got) != body || err != nil {
					t.Errorf("%d %s, %v", res.StatusCode, got, err)
				}
				if metrics, err := registry.Gather(); len(metrics) != 0 || err != nil {
					t.Errorf("%v, %v", metrics, err)
				}
			})
		}
	}
}
