package spool_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/identity"
	wal "github.com/edgehub-io/edgehub/cache/log"
	"github.com/edgehub-io/edgehub/cache/patch"
	"github.com/edgehub-io/edgehub/cache/spool"
	"github.com/edgehub-io/edgehub/cache/wire"
)

const (
	strategic = "application/strategic-merge-patch+json"
	kubelet   = "application/vnd.kubernetes.protobuf,application/json"
)

// memory returns a table of a log that is never opened. It outlives what is opened on it, as a disk does.
func memory(tb testing.TB) *wal.Table { return newLog(tb, "").Table(spool.Table) }

func newLog(tb testing.TB, dir string) *wal.Log {
	tb.Helper()
	log, err := wal.New(dir, wal.Options{Keep: []string{spool.Table}, LockTimeout: time.Millisecond})
	if err != nil {
		tb.Fatal(err)
	}
	return log
}

func open(tb testing.TB, t *wal.Table, o spool.Options) *spool.Spool {
	tb.Helper()
	s := spool.New(t, o)
	if err := s.Load(); err != nil {
		tb.Fatal(err)
	}
	return s
}

// post is a POST by the node, in JSON.
func post(name string) spool.Request {
	return spool.Request{
		Method: http.MethodPost, Version: "v1", Namespace: "ns", Accept: kubelet, User: "node", UserAgent: "kubelet/v1",
		Body: fmt.Appendf(nil, `{"metadata":{"name":%q,"resourceVersion":"9"},"involvedObject":{"kind":"Pod","namespace":"ns","name":"p"},"count":1}`, name),
	}
}

// patched is a recorder's PATCH of what post has posted.
func patched(name string, count int) spool.Request {
	r := post(name)
	r.Method, r.Name, r.ContentType = http.MethodPatch, name, strategic
	r.Body = fmt.Appendf(nil, `{"count":%d}`, count)
	return r
}

// counted is a POST of a series that has come so often.
func counted(name string, count int) spool.Request {
	r := post(name)
	r.Body = bytes.ReplaceAll(r.Body, []byte(`"count":1`), fmt.Appendf(nil, `"count":%d`, count))
	return r
}

// byToken is r from a caller with a token.
func byToken(r spool.Request, user, token string) spool.Request {
	r.User, r.Authorization = user, "Bearer "+token
	return r
}

func add(tb testing.TB, s *spool.Spool, r spool.Request, code int) *corev1.Event {
	tb.Helper()
	a, err := s.Add(r)
	if err != nil || a.Code != code {
		tb.Fatalf("%s %s: %d, %v; want %d", r.Method, r.Name, a.Code, err, code)
	}
	event, err := convert.DecodeBody(a.ContentType, a.Body, wire.TypeMeta{})
	if err != nil {
		tb.Fatal(err)
	}
	return event.(*corev1.Event)
}

func TestAPostIsAnsweredAsAnAPIServerDoes(t *testing.T) {
	s := open(t, memory(t), spool.Options{})
	got := add(t, s, post("a"), http.StatusCreated)
	if got.Name != "a" || got.Namespace != "ns" || got.UID == "" || got.CreationTimestamp.IsZero() || got.ResourceVersion != "" || got.Kind != "Event" || got.Count != 1 {
		t.Errorf("%+v", got)
	}
	if again := add(t, s, counted("a", 4), http.StatusCreated); again.Count != 4 || s.Len() != 1 {
		t.Errorf("posted twice, there are %d: %+v", s.Len(), again)
	}

	generated := post("")
	generated.Body = []byte(`{"metadata":{"generateName":"x-"}}`)
	one, two := add(t, s, generated, http.StatusCreated), add(t, s, generated, http.StatusCreated)
	if !strings.HasPrefix(one.Name, "x-") || one.Name == "x-" || one.Name == two.Name {
		t.Errorf("generated names %q, %q", one.Name, two.Name)
	}
	generated.Body = []byte(`{"metadata":{"generateName":"` + strings.Repeat("x", 300) + `"}}`)
	if got := add(t, s, generated, http.StatusCreated); len(got.Name) != 253 {
		t.Errorf("a generated name of %d characters", len(got.Name))
	}
}

func TestEventsOfTheNewGroup(t *testing.T) {
	s := open(t, memory(t), spool.Options{})
	r := post("a")
	r.Group = "events.k8s.io"
	r.Body = []byte(`{"kind":"Event","apiVersion":"events.k8s.io/v1","metadata":{"name":"a","namespace":"ns"},"note":"n"}`)
	a, err := s.Add(r)
	if err != nil {
		t.Fatal(err)
	}
	event, err := convert.DecodeBody(a.ContentType, a.Body, wire.TypeMeta{})
	if got, ok := event.(*eventsv1.Event); err != nil || !ok || got.Note != "n" {
		t.Errorf("%v, %v", event, err)
	}
	series := patched("a", 2)
	series.Group, series.Body = r.Group, []byte(`{"series":{"count":2,"lastObservedTime":"2026-01-01T00:00:00.000000Z"}}`)
	if a, err := s.Add(series); err != nil || a.Code != http.StatusOK {
		t.Errorf("%v, %v", a, err)
	}
	if _, err := s.Add(patched("a", 2)); !apierrors.IsNotFound(err) {
		t.Errorf("patched as another type: %v", err)
	}
}

func TestAPatchIsMergedOrNotFound(t *testing.T) {
	s := open(t, memory(t), spool.Options{})
	if _, err := s.Add(patched("a", 2)); !apierrors.IsNotFound(err) {
		t.Errorf("a patch of what was not posted: %v", err)
	}
	first := add(t, s, post("a"), http.StatusCreated)
	got := add(t, s, patched("a", 2), http.StatusOK)
	if got.Count != 2 || got.UID != first.UID || got.InvolvedObject.Name != "p" {
		t.Errorf("%+v", got)
	}
	put := patched("a", 0)
	put.Method, put.ContentType, put.Body = http.MethodPut, "application/json", []byte(`{"metadata":{"name":"a"},"count":7}`)
	if got := add(t, s, put, http.StatusOK); got.Count != 7 || got.UID != first.UID {
		t.Errorf("%+v", got)
	}
}

// While the cloud is away, nobody says who may post where: whoever takes a name takes it from nobody.
func TestTheSameNameOfAnotherCallerIsAnotherEvent(t *testing.T) {
	adam, eve, node := byToken(counted("a", 2), "adam", "t"), byToken(counted("a", 3), "eve", "t"), counted("a", 4)
	for _, all := range [][]spool.Request{{adam, eve, node}, {node, eve, adam}, {eve, node, adam}} {
		s := open(t, memory(t), spool.Options{})
		for i, r := range all {
			change := patched("a", 9)
			change.User, change.Authorization = r.User, r.Authorization
			if _, err := s.Add(change); !apierrors.IsNotFound(err) {
				t.Errorf("%s changes another one's event: %v", r.User, err)
			}
			if add(t, s, r, http.StatusCreated); s.Len() != i+1 {
				t.Errorf("there are %d, after the POST of %s", s.Len(), r.User)
			}
		}
		var got []sending
		if err := s.Replay(t.Context(), cloud(t, &got, nil)); err != nil {
			t.Fatal(err)
		}
		for i, r := range all {
			if got[i].asNode != (r.User == "node") || !bytes.Contains(r.Body, fmt.Appendf(nil, `"count":%d`, got[i].event.Count)) {
				t.Errorf("sent %+v of %s", got[i].event, r.User)
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	s := open(t, memory(t), spool.Options{})
	add(t, s, post("a"), http.StatusCreated)
	for _, c := range []struct {
		name   string
		change func(*spool.Request)
		code   int32 // 0: not an apiserver's answer
		is     error
	}{
		{"no JSON", func(r *spool.Request) { r.Body = []byte("{") }, 400, nil},
		{"another kind", func(r *spool.Request) { r.Body = []byte(`{"kind":"Pod","apiVersion":"v1"}`) }, 400, nil},
		{"no name", func(r *spool.Request) { r.Body = []byte(`{}`) }, 400, nil},
		{"another namespace", func(r *spool.Request) { r.Body = []byte(`{"metadata":{"name":"b","namespace":"other"}}`) }, 400, nil},
		{"no namespace", func(r *spool.Request) { r.Namespace = "" }, 400, nil},
		{"more than etcd takes", func(r *spool.Request) {
			r.Body = fmt.Appendf(nil, `{"metadata":{"name":"b"},"message":"%01500000d"}`, 0)
		}, 413, nil},
		{"a patch to more than etcd takes", func(r *spool.Request) {
			*r = patched("a", 2)
			r.Body = fmt.Appendf(nil, `{"message":"%01500000d"}`, 0)
		}, 413, nil},
		{"YAML", func(r *spool.Request) { r.ContentType = "application/yaml" }, 415, nil},
		{"a patch that is none", func(r *spool.Request) { *r = patched("a", 2); r.Body = []byte("[]") }, 400, nil},
		{"a patch to another name", func(r *spool.Request) { *r = patched("a", 2); r.Body = []byte(`{"metadata":{"name":"b"}}`) }, 400, nil},
		{"an unknown type of patch", func(r *spool.Request) { *r = patched("a", 2); r.ContentType = "x/y" }, 415, nil},
		{"server-side apply", func(r *spool.Request) { *r = patched("a", 2); r.ContentType = "application/apply-patch+yaml" }, 0, patch.ErrUnsupported},
		{"a deletion", func(r *spool.Request) { r.Method = http.MethodDelete }, 0, patch.ErrUnsupported},
		{"a group that has no events", func(r *spool.Request) { r.Group = "apps" }, 0, patch.ErrUnsupported},
		{"a caller without credentials who is not the node", func(r *spool.Request) { r.User = "somebody" }, 0, patch.ErrUnsupported},
		{"a client that wants neither encoding", func(r *spool.Request) { *r = patched("a", 2); r.Accept = "text/html" }, 0, convert.ErrNotAcceptable},
	} {
		r := post("b")
		c.change(&r)
		_, err := s.Add(r)
		var status apierrors.APIStatus
		if ok := errors.As(err, &status); ok != (c.code != 0) || ok && status.Status().Code != c.code || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if s.Len() != 1 {
		t.Errorf("%d events", s.Len())
	}
}

func TestBounds(t *testing.T) {
	metrics := prometheus.NewRegistry()
	few := open(t, memory(t), spool.Options{MaxCount: 2, Registerer: metrics})
	add(t, few, post("a"), http.StatusCreated)
	add(t, few, post("b"), http.StatusCreated)
	if _, err := few.Add(post("c")); !errors.Is(err, spool.ErrFull) {
		t.Errorf("a third of two: %v", err)
	}
	add(t, few, patched("a", 2), http.StatusOK)

	small := open(t, memory(t), spool.Options{MaxBytes: 400})
	add(t, small, post("a"), http.StatusCreated)
	large := post("b")
	large.Body = []byte(`{"metadata":{"name":"b"},"message":"` + strings.Repeat("m", 400) + `"}`)
	if _, err := small.Add(large); !errors.Is(err, spool.ErrFull) {
		t.Errorf("more bytes than allowed: %v", err)
	}
	growing := patched("a", 1)
	growing.Body = []byte(`{"message":"` + strings.Repeat("m", 400) + `"}`)
	if _, err := small.Add(growing); !errors.Is(err, spool.ErrFull) {
		t.Errorf("grown beyond what is allowed: %v", err)
	}

	for name, want := range map[string]float64{"added_total": 2, "dropped_total full": 1, "events": 2} {
		name, reason, _ := strings.Cut(name, " ")
		if got := metric(t, metrics, name, reason); got != want {
			t.Errorf("%s %s is %v, want %v", name, reason, got, want)
		}
	}
}

func TestARestartKeepsTheNodesEventsAndDropsThoseOfTokens(t *testing.T) {
	disk := memory(t)
	var logged bytes.Buffer
	s := open(t, disk, spool.Options{})
	for _, name := range []string{"a", "b", "c"} {
		add(t, s, post(name), http.StatusCreated)
	}
	add(t, s, patched("b", 5), http.StatusOK)
	add(t, s, byToken(post("t"), "someone", "the-secret"), http.StatusCreated)
	for _, key := range disk.Keys() {
		if value, ok := disk.Get(key); !ok || bytes.Contains(value, []byte("the-secret")) {
			t.Errorf("a token is on disk, or nothing: %s", value)
		}
	}
	disk.Put(disk.Keys()[0], []byte("{"))

	s = open(t, disk, spool.Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	if s.Len() != 2 || len(disk.Keys()) != 2 {
		t.Errorf("%d events, %d on disk; want b and c", s.Len(), len(disk.Keys()))
	}
	if !strings.Contains(logged.String(), "count=1") || !strings.Contains(logged.String(), "tokens") {
		t.Errorf("logged: %s", &logged)
	}
	if got := add(t, s, patched("b", 6), http.StatusOK); got.Count != 6 || got.InvolvedObject.Name != "p" {
		t.Errorf("%+v", got)
	}
	add(t, s, post("d"), http.StatusCreated)
	if sent := sentBy(t, s); strings.Join(sent, " ") != "b c d" {
		t.Errorf("sent %v", sent)
	}
	if left := disk.Keys(); len(left) != 0 {
		t.Errorf("left on disk: %v", left)
	}
}

func TestConcurrentUse(t *testing.T) {
	s := open(t, memory(t), spool.Options{})
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			name := fmt.Sprint(i)
			if _, err := s.Add(post(name)); err != nil {
				t.Error(err)
			}
			if _, err := s.Add(patched(name, 2)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if s.Len() != 20 {
		t.Errorf("%d events", s.Len())
	}
}

func FuzzAdd(f *testing.F) {
	f.Add(http.MethodPost, "", "application/json", []byte(`{"metadata":{"generateName":"x"}}`))
	f.Add(http.MethodPatch, "a", strategic, []byte(`{"count":2,"series":null}`))
	f.Add(http.MethodPost, "", "application/vnd.kubernetes.protobuf", []byte("k8s\x00\n\x0b\n\x02v1\x12\x05Event\x12\x00\x1a\x00\"\x00"))
	f.Fuzz(func(t *testing.T, method, name, contentType string, body []byte) {
		s := open(t, memory(t), spool.Options{})
		add(t, s, post("a"), http.StatusCreated)
		r := post("")
		r.Method, r.Name, r.ContentType, r.Body = method, name, contentType, body
		a, err := s.Add(r)
		if err != nil {
			return
		}
		event, err := convert.DecodeBody(a.ContentType, a.Body, wire.TypeMeta{})
		if err != nil {
			t.Fatalf("the answer cannot be read: %v", err)
		}
		if m, err := meta.Accessor(event); err != nil || m.GetName() == "" || m.GetNamespace() != "ns" {
			t.Errorf("%v, %v", m, err)
		}
	})
}

// A token that is held for an event takes up room as the event does, and grows with it.
func TestTokensCount(t *testing.T) {
	s := open(t, memory(t), spool.Options{MaxBytes: 100_000})
	for i := range 1000 {
		_, err := s.Add(byToken(post(fmt.Sprint(i)), "u", strings.Repeat("t", 30_000)))
		if err != nil && !errors.Is(err, spool.ErrFull) {
			t.Fatal(err)
		}
	}
	if s.Len() != 3 {
		t.Errorf("%d events with tokens of 30,000 bytes are in 100,000 bytes", s.Len())
	}
	if _, err := s.Add(byToken(patched("0", 2), "u", strings.Repeat("t", 60_000))); !errors.Is(err, spool.ErrFull) {
		t.Errorf("a larger token: %v", err)
	}
	add(t, s, byToken(patched("0", 2), "u", "t"), http.StatusOK)
	add(t, s, byToken(post("more"), "u", strings.Repeat("t", 25_000)), http.StatusCreated)
}

// #17: who posts events without end fills the spool for nobody else, also if it does so by many service accounts of its
// namespace.
func TestAFloodOfEventsTakesNoRoomFromOtherUsers(t *testing.T) {
	account := func(namespace string, i int) string {
		return identity.User{Name: fmt.Sprintf("system:serviceaccount:%s:a%d", namespace, i), UID: "1"}.Key()
	}
	one, many := func(int) string { return "flooder" }, func(i int) string { return account("flood", i) }
	for name, test := range map[string]struct {
		flooder func(i int) string
		options spool.Options
	}{
		"one user, in number":      {one, spool.Options{MaxCount: 20}},
		"one user, in bytes":       {one, spool.Options{MaxBytes: 8000}},
		"many accounts, in number": {many, spool.Options{MaxCount: 20}},
		"many accounts, in bytes":  {many, spool.Options{MaxBytes: 8000}},
	} {
		t.Run(name, func(t *testing.T) {
			metrics := prometheus.NewRegistry()
			test.options.Registerer = metrics
			s := open(t, memory(t), test.options)
			victim := account("victims", 1)
			add(t, s, byToken(post("before"), victim, "t"), http.StatusCreated)
			add(t, s, post("nodes"), http.StatusCreated)
			var last error
			for i := range 100 {
				_, last = s.Add(byToken(post(fmt.Sprint("flood", i)), test.flooder(i), "t"))
				if last != nil && !errors.Is(last, spool.ErrFull) {
					t.Fatal(last)
				}
			}
			for _, event := range []spool.Request{
				byToken(post("after"), victim, "t"), post("ofTheNode"), byToken(patched("before", 2), victim, "t"), patched("nodes", 2),
			} {
				if _, err := s.Add(event); err != nil {
					t.Errorf("%s: %v", event.Body, err)
				}
			}
			if test.flooder(0) == test.flooder(1) {
				if _, err := s.Add(byToken(patched("flood0", 2), "flooder", "t")); last == nil || !apierrors.IsNotFound(err) {
					t.Errorf("the flooder's last event: %v; its oldest: %v", last, err)
				}
			}
			if metric(t, metrics, "dropped_total", "quota") == 0 {
				t.Error("what is dropped for others is not counted")
			}
		})
	}
}
