package cache

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"testing/iotest"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/edgehub-io/edgehub/cache/view"
)

const asJSON = "application/json"

// encodedPods is a list as an apiserver sends it.
func encodedPods(t *testing.T, mediaType, version string, n int) []byte {
	t.Helper()
	l := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: version}}
	for i := range n {
		l.Items = append(l.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("p%03d", i), ResourceVersion: fmt.Sprint(i + 1)}})
	}
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), mediaType)
	body, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion), l)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// readBody returns what a client reads of an answer, up to an error.
func readBody(ctx context.Context, t *testing.T, c *Cache, url string) ([]byte, error) {
	t.Helper()
	res, err := c.RoundTrip(newRequest(ctx, http.MethodGet, url))
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(res.Body)
	return body, errors.Join(err, res.Body.Close())
}

// Invariants 2 and 17: a list that is cut, aborted, badly compressed or cannot be read comes as it
// was sent, and leaves the list before.
func TestABadListChangesNothing(t *testing.T) {
	deflated := func(body []byte) []byte {
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		_, _ = w.Write(body)
		_ = w.Close()
		return out.Bytes()
	}
	flipped := func(body []byte, at int) []byte {
		body = slices.Clone(body)
		body[at] ^= 0xff
		return body
	}
	for _, accept := range []string{asJSON, protobuf} {
		before, newer := encodedPods(t, accept, "100", 50), encodedPods(t, accept, "200", 50)
		zipped := deflated(newer)
		for name, bad := range map[string]struct {
			body      []byte
			encoding  string
			mediaType string // that of before, if empty
			abort     bool   // instead of a clean end
			leaves    bool   // the client, in the middle
		}{
			"cut in an item, clean end":               {body: newer[:len(newer)*2/3]},
			"cut one byte before the end, clean end":  {body: newer[:len(newer)-2]},
			"cut before the first item, clean end":    {body: newer[:12]},
			"whole, then aborted":                     {body: newer, abort: true},
			"cut in an item, then aborted":            {body: newer[:len(newer)*2/3], abort: true},
			"a client that leaves in the middle":      {body: newer, leaves: true},
			"whole, then more":                        {body: append(slices.Clone(newer), `{"more":1}`...)},
			"gzip cut in the middle":                  {body: zipped[:len(zipped)/2], encoding: "gzip"},
			"gzip without its last bytes":             {body: zipped[:len(zipped)-4], encoding: "gzip"},
			"gzip with a wrong checksum":              {body: flipped(zipped, len(zipped)-6), encoding: "gzip"},
			"gzip with a wrong byte":                  {body: flipped(zipped, len(zipped)/2), encoding: "gzip"},
			"not gzip at all":                         {body: newer, encoding: "gzip"},
			"JSON that is none":                       {body: []byte(`{"kind":"PodList","items":[}`), mediaType: asJSON},
			"protobuf that is none":                   {body: []byte("k8s\x00\xff\xff\xff"), mediaType: protobuf},
			"CBOR":                                    {body: []byte("\xd9\xd9\xf7\xa0"), mediaType: "application/cbor"},
			"a type that nobody knows":                {body: []byte("nothing"), mediaType: "text/x-nothing"},
			"an empty body":                           {},
			"an empty body of a type that is unknown": {mediaType: "text/x-nothing"},
		} {
			bubble(t, accept+", "+name, func(t *testing.T) {
				u := newUpstream()
				answer := func(body []byte, mediaType, encoding string, abort bool) {
					u.on("list", func(*http.Request) *http.Response {
						res := respond(http.StatusOK, string(body))
						res.Header.Set("Content-Type", mediaType)
						if encoding != "" {
							res.Header.Set("Content-Encoding", encoding)
						}
						if abort {
							res.Body = io.NopCloser(io.MultiReader(res.Body, iotest.ErrReader(io.ErrUnexpectedEOF)))
						}
						return res
					})
				}
				ctx := acceptingGzip(context.WithValue(t.Context(), acceptKey{}, accept))
				answer(before, accept, "", false)
				c := startCache(t, u)
				if got, err := readBody(ctx, t, c, urlPods); err != nil || !bytes.Equal(got, before) {
					t.Fatalf("online: %v, %q", err, got)
				}
				if bad.mediaType == "" {
					bad.mediaType = accept
				}
				answer(bad.body, bad.mediaType, bad.encoding, bad.abort)
				if bad.leaves {
					res, err := c.RoundTrip(newRequest(ctx, http.MethodGet, urlPods))
					if err != nil {
						t.Fatal(err)
					}
					if _, err := io.CopyN(io.Discard, res.Body, int64(len(bad.body)/2)); err != nil {
						t.Error(err)
					}
					res.Body.Close()
				} else if got, err := readBody(ctx, t, c, urlPods); (err != nil) != bad.abort || !bytes.Equal(got, bad.body) {
					t.Errorf("the client gets %d bytes of the %d that were sent: %v", len(got), len(bad.body), err)
				}
				u.goAway()
				if got, err := readBody(ctx, t, c, urlPods); err != nil || !bytes.Equal(got, before) {
					t.Errorf("offline, the list is not what it was: %v, %.300q", err, got)
				}
			})
		}
	}
}

// Invariant 3: a list in pages that does not get to its last is none.
func TestAMissingPageLeavesTheListBefore(t *testing.T) {
	for name, second := range map[string]answerFunc{
		"nobody asks for it":        nil,
		"the cloud is lost":         func(*http.Request) *http.Response { return nil },
		"500":                       func(*http.Request) *http.Response { return respond(http.StatusInternalServerError, "{}") },
		"410, the token is too old": func(*http.Request) *http.Response { return respond(http.StatusGone, "{}") },
		"it is aborted": func(*http.Request) *http.Response {
			res := respond(http.StatusOK, "")
			res.Body = io.NopCloser(io.MultiReader(bytes.NewBufferString(podsJSON("200", podJSON("c", "150"))), iotest.ErrReader(io.ErrUnexpectedEOF)))
			return res
		},
	} {
		bubble(t, name, func(t *testing.T) {
			u, c := startListed(t, "100", podJSON("a", "50"), podJSON("b", "60"))
			u.on("list", func(r *http.Request) *http.Response {
				if r.URL.Query().Get("continue") != "" {
					return second(r)
				}
				return respond(http.StatusOK, fmt.Sprintf(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"200","continue":"next"},"items":[%s]}`, podJSON("a", "150")))
			})
			if got, want := get(t, c, urlPods+"?limit=5"), "200: a=150"; got != want {
				t.Fatalf("the first page is %q, want %q", got, want)
			}
			if second != nil {
				get(t, c, urlPods+"?limit=5&continue=next")
			}
			u.goAway()
			expect(t, c, "offline", urlPods, "100: a=50 b=60")
		})
	}
}

// Invariant 17: frames that cannot be read pass as they came, and so does what comes after them.
// What the cache could not read it does not claim to know.
func TestFramesThatCannotBeReadPass(t *testing.T) {
	const before = "100: a=50"
	unknown := view.ErrNeverRead.Error()
	for name, test := range map[string]struct {
		accept, mediaType string
		frames            []string
		want              string // offline
	}{
		"JSON that is none, between good events": {asJSON, asJSON, []string{podEvent("ADDED", "x", "101"), `{"type":"ADDED","object":{"kind":]]` + "\n", podEvent("ADDED", "y", "103")}, unknown},
		"an event of a type that nobody knows":   {asJSON, asJSON, []string{podEvent("RENAMED", "x", "101"), podEvent("ADDED", "y", "103")}, unknown},
		"protobuf frames full of noise":          {protobuf, protobuf + ";stream=watch", []string{"\x00\x00\x00\x05\xff\xff\xff\xff\xff", "\x00\x00\x00\x03\x01\x02\x03"}, unknown},
		"CBOR":                                   {"application/cbor", "application/cbor-seq", []string{"\xd9\xd9\xf7\xa1\x44type\x45ADDED", "\xd9\xd9\xf7\xa0"}, view.ErrBehind.Error()},
		"tables, which are for people":           {asTable, asJSON, []string{`{"type":"ADDED","object":{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"101"}}}`}, before},
	} {
		bubble(t, name, func(t *testing.T) {
			u, c := startListed(t, "100", podJSON("a", "50"))
			u.onText("list", http.StatusServiceUnavailable, "{}")
			u.on("watch", func(r *http.Request) *http.Response {
				res := u.open(r)
				res.Header.Set("Content-Type", test.mediaType)
				return res
			})
			ctx := context.WithValue(t.Context(), acceptKey{}, test.accept)
			w := startWatch(ctx, t, c, urlWatch+"&resourceVersion=100")
			feed := <-u.feeds
			sent := ""
			for i, frame := range test.frames {
				send(t, feed, frame)
				synctest.Wait()
				w.mu.Lock()
				got := w.body.String()
				w.mu.Unlock()
				if sent += frame; got != sent {
					t.Errorf("after frame %d the client has %q, want %q", i, got, sent)
				}
			}
			u.goAway()
			expect(t, c, "offline", urlPods, test.want)
		})
	}
}

// Invariant 8: a second watch that is late, and a list that was made before a deletion and comes
// after it, bring nothing back.
func TestLateNewsIsNoNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, c := startListed(t, "100", podJSON("a", "50"), podJSON("b", "60"))
		var feeds []*io.PipeWriter
		for range 2 {
			startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=100")
			feeds = append(feeds, <-u.feeds)
		}
		late := make(chan struct{})
		u.on("list", func(*http.Request) *http.Response {
			<-late
			return respond(http.StatusOK, podsJSON("101", podJSON("a", "101"), podJSON("b", "60")))
		})
		listed := make(chan string, 1) // one answer
		go func() { listed <- get(t, c, urlPods) }()
		synctest.Wait()
		send(t, feeds[0], podEvent("MODIFIED", "a", "101"), podEvent("DELETED", "a", "102"))
		synctest.Wait()
		send(t, feeds[1], podEvent("MODIFIED", "a", "101"))
		synctest.Wait()
		close(late)
		if got, want := <-listed, "101: a=101 b=60"; got != want {
			t.Errorf("the late list is %q, want %q", got, want)
		}
		u.goAway()
		expect(t, c, "offline, the list", urlPods, "102: b=60")
		expect(t, c, "offline, the object", urlPodA, "404")
	})
}
