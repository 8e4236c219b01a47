package cache

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/edgehub-io/edgehub/test/internal/rawclient"
)

// rootsOnly trusts the apiserver and shows it no certificate.
func rootsOnly(t *testing.T) *tls.Config {
	return &tls.Config{RootCAs: rawclient.Roots(t, env.CAFile())}
}

// fakeMaps is the collection that a scripted apiserver serves.
const fakeMaps = "/api/v1/namespaces/default/configmaps"

// fake is a scripted apiserver over TLS and HTTP/2: it answers in whatever way the
// test asks for.
type fake struct {
	server *httptest.Server
	lists  atomic.Int64 // requests for the collection that are no watches

	mu    sync.Mutex
	list  http.HandlerFunc // of LIST, and GET of single objects
	watch http.HandlerFunc
	all   http.HandlerFunc // in place of everything, if set
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{}
	f.server = httptest.NewUnstartedServer(http.HandlerFunc(f.serve))
	f.server.EnableHTTP2 = true
	f.server.Config.ErrorLog = log.New(io.Discard, "", 0) // it says that handlers abort, as they should
	f.server.StartTLS()
	t.Cleanup(func() {
		f.server.CloseClientConnections()
		f.server.Close()
	})
	return f
}

func (f *fake) caPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.server.Certificate().Raw})
}

// script sets how the collection is answered from now on; nil leaves it.
func (f *fake) script(list, watch http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if list != nil {
		f.list = list
	}
	if watch != nil {
		f.watch = watch
	}
}

// replace answers every request with h; nil ends that.
func (f *fake) replace(h http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = h
}

func (f *fake) serve(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	list, watch, all := f.list, f.watch, f.all
	f.mu.Unlock()
	switch watching := r.URL.Query().Get("watch") == "true"; {
	case all != nil:
		all(w, r)
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/selfsubjectreviews"):
		w.Header().Set("Content-Type", asJSON)
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "{}")
	case strings.HasPrefix(r.URL.Path, fakeMaps) && watching && watch != nil:
		watch(w, r)
	case strings.HasPrefix(r.URL.Path, fakeMaps) && !watching && list != nil:
		f.lists.Add(1)
		list(w, r)
	case r.URL.Path == "/livez" || r.URL.Path == "/readyz" || r.URL.Path == "/healthz":
		_, _ = io.WriteString(w, "ok")
	default:
		http.NotFound(w, r)
	}
}

// fakeMap is a ConfigMap at a version.
func fakeMap(name string, version int) corev1.ConfigMap {
	return corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: "11111111-1111-1111-1111-111111111111", ResourceVersion: fmt.Sprint(version)},
		Data:       map[string]string{"value": fmt.Sprintf("%s at %d", name, version)},
	}
}

// fakeList is a list of n ConfigMaps at a version; next is its continue token.
func fakeList(version, n int, next string) *corev1.ConfigMapList {
	l := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(version), Continue: next}}
	for i := range n {
		l.Items = append(l.Items, fakeMap(fmt.Sprintf("c-%03d", i), i+1))
	}
	return l
}

// encode writes an object as an apiserver does.
func encode(t *testing.T, object runtime.Object, mediaType string) []byte {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), mediaType)
	if !ok {
		t.Fatalf("no serializer for %s", mediaType)
	}
	var out bytes.Buffer
	if err := scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion).Encode(object, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// answering is a handler that sends an object with 200.
func answering(t *testing.T, object runtime.Object, mediaType string) http.HandlerFunc {
	t.Helper()
	body := encode(t, object, mediaType)
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", mediaType)
		_, _ = w.Write(body)
	}
}

// failing is a handler that sends a Status.
func failing(code int, reason metav1.StatusReason) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", asJSON)
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"scripted","reason":%q,"code":%d}`, reason, code)
	}
}

// sending is a watch that passes on what the channel gives, until it is closed or the
// client leaves.
func sending(contentType string, frames <-chan []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(http.StatusOK)
		control := http.NewResponseController(w)
		_ = control.Flush()
		for {
			select {
			case frame, more := <-frames:
				if !more {
					return
				}
				if _, err := w.Write(frame); err != nil {
					return
				}
				_ = control.Flush()
			case <-r.Context().Done():
				return
			}
		}
	}
}

// send hands a frame to a watch that is open.
func send(t *testing.T, frames chan<- []byte, frame []byte) {
	t.Helper()
	select {
	case frames <- frame:
	case <-time.After(patience):
		t.Fatalf("no watch is open to take %.100q", frame)
	}
}
