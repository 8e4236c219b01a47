package ownnode

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// TestWhatIsAClone has sequences of what a hub sees, in words: the boot ID of the Node, as BOOT@VERSION of UID "first", or of
// another with /UID after it; "409", a renewal of the lease that met a conflict; and how long nothing is seen.
func TestWhatIsAClone(t *testing.T) {
	for what, tt := range map[string]struct {
		seen  string
		clone bool
	}{
		"two kubelets in turns":                           {"ours@1 theirs@2 409 ours@3 409 theirs@4", true},
		"the same, by its last conflict":                  {"ours@1 theirs@2 ours@3 409 theirs@4 ours@5 409", true},
		"slowly":                                          {"ours@1 theirs@2 409 4m ours@3 409 4m theirs@4", true},
		"more slowly than two kubelets do":                {"ours@1 theirs@2 409 6m ours@3 409 6m theirs@4", false},
		"it was there ten minutes ago":                    {"ours@1 theirs@2 409 ours@3 409 theirs@4 10m1s", false},
		"it is there in every read":                       {"theirs@1 theirs@2 409 theirs@3 409 theirs@4", false},
		"a reboot":                                        {"theirs@1 theirs@1 409 ours@2 409 ours@3 ours@4", false},
		"two reboots, and this one":                       {"before@1 theirs@2 409 before@3 409 theirs@4 ours@5", false},
		"a restart of kubelet":                            {"ours@1 409 ours@2 409 ours@3 409", false},
		"a reboot, and an apiserver that lags":            {"theirs@1 ours@2 409 theirs@1 ours@2 409 theirs@1 ours@3 theirs@1", false},
		"answers of the same version":                     {"ours@2 theirs@2 409 ours@2 409 theirs@2", false},
		"a backup that is restored":                       {"ours@1 theirs@2 409 ours@3 409 ours@4", false},
		"no conflict":                                     {"ours@1 theirs@2 ours@3 theirs@4 ours@5 theirs@6", false},
		"one conflict":                                    {"ours@1 theirs@2 409 ours@3 theirs@4 ours@5 theirs@6", false},
		"renewals whose answers are lost":                 {"ours@1 409 409 409 409", false},
		"a Node that is deleted, and created again":       {"ours@1 theirs@2 409 ours@3/second 409 theirs@4/second", false},
		"the same, again and again, by boots before":      {"ours@1 theirs@2/second 409 ours@3/third 409 theirs@4/fourth 409", false},
		"two kubelets, also after it was created again":   {"ours@1/other theirs@2 ours@3 409 theirs@4 409 ours@5 theirs@6", true},
		"a Node that says no boot ID":                     {"ours@1 @2 409 ours@3 409 @4", false},
		"another cluster, whose versions are lower":       {"ours@90/other ours@1 theirs@2 409 ours@3 409 theirs@4", true},
		"a copy that is switched off, and another reboot": {"ours@1 theirs@2 409 ours@3 409 11m theirs@4 ours@5", false},
	} {
		t.Run(what, func(t *testing.T) {
			now := time.Unix(1_000_000, 0)
			c := clone{boot: "ours"}
			for word := range strings.FieldsSeq(tt.seen) {
				now = now.Add(10 * time.Second)
				boot, rest, isNode := strings.Cut(word, "@")
				if !isNode && word == "409" {
					c.conflict(now)
					continue
				}
				if !isNode {
					pause, err := time.ParseDuration(word)
					if err != nil {
						t.Fatal(err)
					}
					now = now.Add(pause)
					continue
				}
				var version uint64
				number, uid, _ := strings.Cut(rest+"/first", "/")
				if _, err := fmt.Sscan(number, &version); err != nil {
					t.Fatal(err)
				}
				c.saw(types.UID(strings.TrimSuffix(uid, "/first")), version, boot, now)
			}
			if c.there(now) != tt.clone {
				t.Errorf("clone is %v, want %v", !tt.clone, tt.clone)
			}
		})
	}
	t.Run("our own boot ID is not known", func(t *testing.T) {
		c, now := clone{}, time.Unix(1_000_000, 0)
		for i, boot := range []string{"", "theirs", "", "theirs", "", "theirs"} {
			c.saw("first", uint64(i+1), boot, now)
			c.conflict(now)
		}
		if c.there(now) {
			t.Error("there is a clone")
		}
	})
}

// played answers requests as an apiserver that has one Node.
type played struct {
	code        int
	contentType string
	body        []byte
}

// RoundTrip implements http.RoundTripper.
func (p *played) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: p.code, Header: http.Header{"Content-Type": {p.contentType}}, Body: io.NopCloser(bytes.NewReader(p.body)), ContentLength: -1}, nil
}

func TestAnotherMachineThatRunsAsThisNode(t *testing.T) {
	for _, encoding := range []wire.Encoding{wire.JSON, wire.Protobuf} {
		t.Run(encoding.MediaType(), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { noticesAClone(t, encoding) }) })
	}
}

func noticesAClone(t *testing.T, encoding wire.Encoding) {
	var log bytes.Buffer
	var told []string
	isNode, away, registry := true, false, prometheus.NewRegistry()
	n := New(Options{
		Name: "gate-17", Boot: "ours", IsNode: func(context.Context) bool { return isNode }, Away: func() bool { return away }, Back: func() {},
		Cloned: func(message string) { told = append(told, message) }, Registerer: registry, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	cloud := &played{}
	through := n.Wrap(cloud)
	send := func(method, path string, code int, body []byte) {
		t.Helper()
		cloud.code, cloud.contentType, cloud.body = code, encoding.MediaType(), body
		res, err := through.RoundTrip(httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if got, err := io.ReadAll(res.Body); err != nil || !bytes.Equal(got, body) {
			t.Fatalf("%s %s: the caller reads %q, and error %v, of %q", method, path, got, err, body)
		}
	}
	version := 0
	node := func(method, boot string) {
		t.Helper()
		version++
		send(method, "/api/v1/nodes/gate-17", 200, encode(t, encoding, &corev1.Node{
			TypeMeta:   metav1.TypeMeta{Kind: "Node", APIVersion: "v1"},
			ObjectMeta: metav1.ObjectMeta{Name: "gate-17", UID: "u", ResourceVersion: fmt.Sprint(version)},
			Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: boot}},
		}))
	}
	const lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/gate-17"
	turn := func() {
		t.Helper()
		time.Sleep(10 * time.Second)
		node("GET", "theirs")
		send("PUT", lease, 409, []byte("{}"))
		node("PATCH", "ours")
	}
	is := func(want bool) {
		t.Helper()
		if got := n.Clone(); (got != "") != want || want && !strings.Contains(got, "another machine runs as node gate-17") {
			t.Fatalf("clone is %q", got)
		}
		value := map[bool]string{true: "1", false: "0"}[want]
		if err := testutil.GatherAndCompare(registry, strings.NewReader("# HELP edgehub_node_cloned 1 while another machine runs as this node, as one does that was started from a copy of its disk.\n# TYPE edgehub_node_cloned gauge\nedgehub_node_cloned "+value+"\n")); err != nil {
			t.Fatal(err)
		}
	}
	node("GET", "ours")
	isNode = false // a pod's reads, and its own lease of any name
	turn()
	turn()
	turn()
	isNode, away = true, true // what the cache has
	turn()
	turn()
	turn()
	away = false
	is(false)
	for range 3 { // another lease's, and what renews none
		node("GET", "theirs")
		send("PUT", lease+"x", 409, []byte("{}"))
		send("GET", lease, 409, []byte("{}"))
		send("PUT", lease, 200, []byte("{}"))
		node("PATCH", "ours")
	}
	is(false)
	time.Sleep(cloneWindow + time.Second)
	for range 3 { // what no kernel has, and what is no Node
		node("GET", strings.Repeat("x", maxBootID+1))
		send("GET", "/api/v1/nodes/gate-17", 200, []byte("not a Node"))
		send("PUT", lease, 409, []byte("{}"))
		node("PATCH", "ours")
	}
	is(false)
	time.Sleep(cloneWindow + time.Second)
	turn()
	is(false)
	turn()
	is(true)
	turn()
	turn()
	is(true)
	if len(told) != 1 || told[0] != n.Clone() || strings.Count(log.String(), "level=WARN") != 1 || !strings.Contains(log.String(), "boot-id-of-other=theirs") {
		t.Errorf("told %q, log:\n%s", told, log.String())
	}
	time.Sleep(cloneWindow + time.Second)
	is(false)
	node("GET", "ours")
	if len(told) != 1 || strings.Count(log.String(), "\n") != 2 {
		t.Errorf("told %q, log:\n%s", told, log.String())
	}
}

func encode(t *testing.T, encoding wire.Encoding, node *corev1.Node) []byte {
	t.Helper()
	_, body, err := convert.EncodeBody(encoding.MediaType(), node)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func TestTheConditionFollowsWhatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set []string
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
		failing := false
		n := New(Options{
			Name: "gate-17", Boot: "ours", Cloned: func(string) {}, Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
			SetCondition: func(_ context.Context, c corev1.NodeCondition) error {
				set = append(set, string(c.Status))
				if failing {
					return io.ErrUnexpectedEOF
				}
				node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, c}
				return nil
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go n.Run(ctx)
		version := uint64(0)
		read := func(boot string, conflict bool) {
			version++
			n.judge(func(now time.Time) { n.clone.saw(node.UID, version, boot, now) })
			if conflict {
				n.judge(n.clone.conflict)
			}
			n.compare(node)
			synctest.Wait()
		}
		during := func(d time.Duration, clone bool) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Second) {
				if clone {
					read("theirs", true)
				}
				read("ours", false)
			}
		}
		is := func(what string, want ...string) {
			t.Helper()
			if got := strings.Join(set, " "); got != strings.Join(want, " ") {
				t.Fatalf("%s: the condition was set to %q, want %q", what, got, want)
			}
			set = nil
		}
		during(time.Hour, false)
		is("a node as others")
		during(time.Minute, true)
		is("a clone", "True")
		during(9*time.Minute, false)
		is("it was there minutes ago")
		during(3*time.Minute, false)
		is("it is gone", "False")
		during(time.Minute, true)
		is("it is back", "True")
		time.Sleep(time.Hour)
		during(time.Minute, true)
		is("an hour without the cloud")
		during(12*time.Minute, false)
		is("it is gone again", "False")
		failing = true
		during(150*time.Second, true)
		is("it cannot be set", "True", "True", "True")
		failing = false
		during(time.Minute, true)
		is("it can", "True")
		// Another hub of this node, started anew, finds what the one before has set.
		n.mu.Lock()
		n.clone, n.cloned, n.seen = clone{boot: "ours"}, time.Time{}, time.Time{}
		n.mu.Unlock()
		during(9*time.Minute, false)
		is("a hub that has just started")
		during(3*time.Minute, false)
		is("nor did it see a clone", "False")
	})
}
