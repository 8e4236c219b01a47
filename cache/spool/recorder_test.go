package spool_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/spool"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// answered is an answer that a recorder got.
type answered struct {
	method string
	code   int
	count  int32
}

// TestClientGosRecorder has the recorder that a kubelet uses say the same three times,
// and again after the spool has been emptied: it must never give up on an event.
func TestClientGosRecorder(t *testing.T) {
	s := open(t, memory(t), spool.Options{})
	answers := make(chan answered, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answers <- serve(t, s, w, r)
	}))
	defer server.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client, err := typedcorev1.NewForConfig(&rest.Config{
		Host: server.URL, Transport: transport,
		ContentConfig: rest.ContentConfig{ContentType: "application/vnd.kubernetes.protobuf", AcceptContentTypes: kubelet},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	broadcaster := record.NewBroadcaster(record.WithContext(ctx), record.WithSleepDuration(time.Millisecond))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.Events("")})
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet", Host: "n"})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u"}}

	say := func(want ...answered) {
		t.Helper()
		recorder.Event(pod, corev1.EventTypeWarning, "BackOff", "again")
		for _, w := range want {
			if got := <-answers; got != w {
				t.Fatalf("the recorder got %+v, want %+v", got, w)
			}
		}
	}
	say(answered{http.MethodPost, 201, 1})
	say(answered{http.MethodPatch, 200, 2})
	say(answered{http.MethodPatch, 200, 3})
	if sent := sentBy(t, s); len(sent) != 1 {
		t.Fatalf("sent %v", sent)
	}
	// The next outage: it is in the cloud, and not here.
	say(answered{http.MethodPatch, 404, 0}, answered{http.MethodPost, 201, 4})
	say(answered{http.MethodPatch, 200, 5})
}

func serve(tb testing.TB, s *spool.Spool, w http.ResponseWriter, r *http.Request) answered {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		tb.Error(err)
	}
	parts := strings.Split(r.URL.Path, "/") // /api/v1/namespaces/ns/events/name
	request := spool.Request{
		Method: r.Method, Version: parts[2], Namespace: parts[4],
		ContentType: r.Header.Get("Content-Type"), Accept: r.Header.Get("Accept"), Body: body, User: "node",
	}
	if len(parts) > 6 {
		request.Name = parts[6]
	}
	a, err := s.Add(request)
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(status.Status().Code))
		json.NewEncoder(w).Encode(status.Status())
		return answered{r.Method, int(status.Status().Code), 0}
	}
	if err != nil {
		tb.Error(err)
	}
	w.Header().Set("Content-Type", a.ContentType)
	w.WriteHeader(a.Code)
	w.Write(a.Body)
	event, err := convert.DecodeBody(a.ContentType, a.Body, wire.TypeMeta{})
	if err != nil {
		tb.Error(err)
		return answered{}
	}
	return answered{r.Method, a.Code, event.(*corev1.Event).Count}
}
