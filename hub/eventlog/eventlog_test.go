package eventlog

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/ota/api"
)

// cloud answers each request with an object.
type cloud struct {
	code   int
	accept string
	object runtime.Object
}

// RoundTrip implements http.RoundTripper.
func (c cloud) RoundTrip(*http.Request) (*http.Response, error) {
	contentType, body, err := convert.EncodeBody(c.accept, c.object)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: c.code, Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(bytes.NewReader(body))}, nil
}

// report sends a request of the node through the log, and returns the answer's body.
func report(t *testing.T, l *Log, c cloud, method, path string) string {
	t.Helper()
	return reportAs(t, l, true, c, method, path)
}

func reportAs(t *testing.T, l *Log, node bool, c cloud, method, path string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://hub"+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := l.Wrap(c, func(context.Context) bool { return node }).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

var seen = time.Date(2026, 11, 3, 4, 5, 6, 0, time.UTC)

func coreEvent(name string, count int32, message string) *corev1.Event {
	return &corev1.Event{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}, ObjectMeta: metav1.ObjectMeta{Namespace: "site", Name: name},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "site", Name: "camera-x"}, Type: "Warning", Reason: "BackOff", Message: message,
		Source: corev1.EventSource{Component: "kubelet"}, Count: count, FirstTimestamp: metav1.NewTime(seen), LastTimestamp: metav1.NewTime(seen.Add(time.Minute)),
	}
}

const (
	collection = "/api/v1/namespaces/site/events"
	protobuf   = "application/vnd.kubernetes.protobuf"
)

func TestWhatPassesIsRemembered(t *testing.T) {
	want := api.Event{
		Namespace: "site", Kind: "Pod", Name: "camera-x", Type: "Warning", Reason: "BackOff", Message: "it crashes", Source: "kubelet", Count: 3,
		First: seen, Last: seen.Add(time.Minute),
	}
	newer := &eventsv1.Event{
		TypeMeta: metav1.TypeMeta{APIVersion: "events.k8s.io/v1", Kind: "Event"}, ObjectMeta: metav1.ObjectMeta{Namespace: "site", Name: "e"},
		Regarding: corev1.ObjectReference{Kind: "Pod", Namespace: "site", Name: "camera-x"}, Type: "Warning", Reason: "BackOff", Note: "it\n crashes",
		ReportingController: "kubelet", EventTime: metav1.NewMicroTime(seen), Series: &eventsv1.EventSeries{Count: 3, LastObservedTime: metav1.NewMicroTime(seen.Add(time.Minute))},
	}
	tests := map[string]struct {
		cloud        cloud
		method, path string
	}{
		"created":              {cloud{201, "application/json", coreEvent("e", 3, "it crashes")}, "POST", collection},
		"created, in protobuf": {cloud{201, protobuf, coreEvent("e", 3, "it crashes")}, "POST", collection},
		"patched":              {cloud{200, protobuf, coreEvent("e", 3, "it crashes")}, "PATCH", collection + "/e"},
		"of events.k8s.io":     {cloud{201, "application/json", newer}, "POST", "/apis/events.k8s.io/v1/namespaces/site/events"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l := &Log{}
			report(t, l, test.cloud, test.method, test.path)
			items := l.List().Items
			if len(items) != 1 {
				t.Fatalf("got %+v", items)
			}
			got := items[0]
			got.First, got.Last = got.First.UTC(), got.Last.UTC()
			if got != want {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestWhatIsNoEventIsNotRemembered(t *testing.T) {
	l := &Log{}
	event := coreEvent("e", 1, "m")
	for _, request := range []string{
		"GET " + collection + "/e", "POST " + collection + "?dryRun=All", "DELETE " + collection + "/e", "POST /api/v1/namespaces/site/pods",
		"POST /api/v1/namespaces/site/pods/x/events", "POST /api/v1/namespaces/events",
	} {
		method, path, _ := strings.Cut(request, " ")
		report(t, l, cloud{201, "", event}, method, path)
	}
	report(t, l, cloud{403, "", event}, "POST", collection)
	reportAs(t, l, false, cloud{201, "", event}, "POST", collection)
	report(t, l, cloud{201, "", &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}}, "POST", collection)
	if items := l.List().Items; len(items) != 0 {
		t.Errorf("got %+v", items)
	}
}

func TestAnEventCommandsNoTerminalAndHasATime(t *testing.T) {
	l := &Log{}
	e := coreEvent("e", 1, "a\x1b[2Jb\u202ec\r\nd")
	e.Reason, e.FirstTimestamp, e.LastTimestamp = "Why\x1b]0;x\a", metav1.Time{}, metav1.Time{}
	report(t, l, cloud{201, protobuf, e}, "POST", collection)
	got := l.List().Items[0]
	if got.Message != "a [2Jb c d" || got.Reason != "Why ]0;x" || got.First.Year() < 2000 || !got.Last.Equal(got.First) {
		t.Errorf("got %+v", got)
	}
}

// Protobuf has times that JSON has not: whoever may create Events must not hide those of others.
func TestATimeThatJSONHasNot(t *testing.T) {
	event := coreEvent("e", 1, "m")
	event.LastTimestamp = metav1.Unix(1<<40, 0)
	l := &Log{}
	report(t, l, cloud{201, protobuf, event}, "POST", collection)
	if _, err := json.Marshal(l.List()); err != nil || len(l.List().Items) != 1 || !l.List().Items[0].Last.Equal(seen) {
		t.Errorf("%+v, %v", l.List(), err)
	}
}

func TestALaterStateReplacesTheEarlierOne(t *testing.T) {
	l := &Log{}
	for i := range most + 20 {
		report(t, l, cloud{201, protobuf, coreEvent(fmt.Sprint("e", i), 1, fmt.Sprint("message ", i))}, "POST", collection)
	}
	report(t, l, cloud{200, protobuf, coreEvent("e30", 7, "again")}, "PATCH", collection+"/e30")
	items := l.List().Items
	if len(items) != most || items[0].Count != 7 || items[0].Message != "again" || items[1].Message != "message 69" || items[most-1].Message != "message 20" {
		t.Errorf("there are %d, from %+v and %+v to %+v", len(items), items[0], items[1], items[len(items)-1])
	}
}

// Each request of the node and its pods passes the log.
func TestOtherRequestsAllocateNothing(t *testing.T) {
	answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: http.NoBody}
	l := (&Log{}).Wrap(always{answer}, func(context.Context) bool { return true })
	for _, request := range []string{
		"GET /api/v1/pods?watch=true", "GET " + collection, "PATCH /api/v1/namespaces/site/pods/x/status", "POST /api/v1/namespaces/events/pods?dryRun=All",
		"PUT /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1", "DELETE " + collection + "/e",
	} {
		method, path, _ := strings.Cut(request, " ")
		req, err := http.NewRequestWithContext(t.Context(), method, "http://hub"+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(100, func() { _, _ = l.RoundTrip(req) }); n > 0 {
			t.Errorf("%s: %v allocations", request, n)
		}
	}
}

// always gives the same answer.
type always struct{ answer *http.Response }

// RoundTrip implements http.RoundTripper.
func (a always) RoundTrip(*http.Request) (*http.Response, error) { return a.answer, nil }

func TestHowMuchAnEventMayTake(t *testing.T) {
	l := &Log{}
	e := coreEvent("e", 1, strings.Repeat("ü", 3000))
	e.Reason = strings.Repeat("r", 3000)
	report(t, l, cloud{201, "", e}, "POST", collection)
	if got := l.List().Items; len(got) != 1 || len(got[0].Message) > maxMessage || len(got[0].Message) < maxMessage-1 || len(got[0].Reason) != maxField {
		t.Errorf("got %+v", got)
	}
	huge := coreEvent("huge", 1, strings.Repeat("m", maxBody))
	if body := report(t, l, cloud{201, "", huge}, "POST", collection); !strings.Contains(body, huge.Message) {
		t.Error("the caller did not get the whole answer")
	}
	if items := l.List().Items; len(items) != 1 {
		t.Errorf("there are %d Events", len(items))
	}
}
