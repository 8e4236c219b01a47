package cache

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/test/cluster/link"
	"github.com/edgehub-io/edgehub/test/internal/freeport"
	"github.com/edgehub-io/edgehub/test/internal/hubproc"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// register makes the Node of a hub, as kubelet does.
func (h *hub) register(e environment) {
	h.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: h.name}}
	if _, err := e.client.CoreV1().Nodes().Create(h.t.Context(), node, metav1.CreateOptions{}); err != nil {
		h.t.Fatal(err)
	}
}

// newMember starts a hub of a node that is in the cluster, and has read the ConfigMap price of a namespace.
func newMember(t *testing.T, e environment) (*hub, *space) {
	t.Helper()
	h, s := newHubIn(t, e), newSpaceIn(t, e)
	h.register(e)
	h.stop() // it reads its Node when it starts
	h.start()
	h.awaitOnline()
	s.create("price")
	h.node.get(t, s.one("price"), asJSON)
	h.node.get(t, s.path, asJSON)
	return h, s
}

// leaveEvent has the hub keep an Event for the cloud, which is away.
func (h *hub) leaveEvent() {
	h.t.Helper()
	a := h.node.do(h.t, request{
		method: http.MethodPost, path: "/api/v1/namespaces/default/events", accept: asJSON, contentType: asJSON,
		body: []byte(`{"kind":"Event","apiVersion":"v1","metadata":{"name":"of-the-old-one","namespace":"default"},"involvedObject":{"kind":"Pod","namespace":"default","name":"p"}}`),
	})
	if a.status != http.StatusCreated {
		h.t.Fatalf("POST of an Event: %v", a)
	}
}

// hasNoEvent fails the test if a cluster has what leaveEvent has left. It is called once the hub has nothing that waits.
func hasNoEvent(t *testing.T, e environment) {
	t.Helper()
	if got, err := e.client.CoreV1().Events("default").Get(t.Context(), "of-the-old-one", metav1.GetOptions{}); err == nil {
		t.Errorf("the old cluster's Event is in the new one: %v", got.UID)
	}
}

// withheld fails the test unless what the node has read is 503.
func (h *hub) withheld(s *space, says string) {
	h.t.Helper()
	for _, path := range []string{s.one("price"), s.path, s.path + "?resourceVersion=0"} {
		if a := h.node.refused(h.t, request{path: path, accept: asJSON}, http.StatusServiceUnavailable); !strings.Contains(string(a.body), says) {
			h.t.Errorf("GET %s: %v", path, a)
		}
	}
}

// kubeadm reset and join: the folder stays, and all else is another.
func TestWhatIsKnownOfAnotherClusterIsNeitherServedNorSent(t *testing.T) {
	t.Parallel()
	a, b := newWorld(t), newWorld(t)
	h, s := newMember(t, a)
	h.lose()
	h.leaveEvent()
	h.stop()

	h.register(b)
	there := &space{t: t, env: b, name: s.name, path: s.path, maps: b.client.CoreV1().ConfigMaps(s.name)}
	if _, err := b.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	there.create("only-there")
	server, err := url.Parse(b.ServerURL())
	if err != nil {
		t.Fatal(err)
	}
	toB, err := link.Listen(fmt.Sprintf("127.0.0.1:%d", freeport.On127(t)), server.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = toB.Close() })
	toA := h.link
	join := func(e environment, l *link.Link) {
		h.IdentifyAs(e.Cluster, "system:masters")
		h.AddArgs("--server-addr=https://" + l.Addr())
		h.link = l
		if err := l.Refuse(); err != nil {
			t.Fatal(err)
		}
		h.start()
	}

	join(b, toB)
	h.withheld(s, "none of those by which the hub knew its cluster")
	h.stop()
	join(a, toA) // nothing was deleted
	if got := h.node.get(t, s.one("price"), asJSON); !strings.Contains(string(got.body), "first of price") {
		t.Errorf("back in the old cluster: %v", got)
	}
	h.stop()

	join(b, toB)
	if err := toB.Up(); err != nil {
		t.Fatal(err)
	}
	h.AwaitFailure()
	h.start()
	h.awaitOnline()
	if got := h.node.get(t, s.path, asJSON); strings.Contains(string(got.body), `"price"`) || !strings.Contains(string(got.body), `"only-there"`) {
		t.Errorf("LIST in the new cluster: %v", got)
	}
	h.lose()
	if got := h.node.get(t, s.path, asJSON); strings.Contains(string(got.body), `"price"`) || !strings.Contains(string(got.body), `"only-there"`) {
		t.Errorf("LIST offline: %v", got)
	}
	h.node.get(t, there.one("only-there"), asJSON)
	h.node.refused(t, request{path: s.one("price"), accept: asJSON}, http.StatusNotFound)
	hasNoEvent(t, b)
	if text, err := os.ReadFile(h.log); err != nil || !strings.Contains(string(text), "the Events, upgrades and holds that waited are dropped") {
		t.Errorf("the log does not say that Events were dropped: %v", err)
	}
}

func TestEtcdIsReplacedUnderARunningHub(t *testing.T) {
	t.Parallel()
	e := newWorld(t)
	h, s := newMember(t, e)
	h.lose()
	h.leaveEvent()
	e.stopStore(t)
	if err := os.RemoveAll(e.EtcdDir()); err != nil {
		t.Fatal(err)
	}
	e.startStore(t)

	// As long as the node is not registered, it is read, and gets nothing that waits.
	h.connect()
	const says = "kubelet has registered its Node"
	poll.Until(t, patience, "the hub says that it may be another cluster", func() bool {
		return strings.Contains(string(h.api.do(t, request{path: "/v1/readyz"}).body), says)
	})
	h.lose()
	h.withheld(s, says)
	h.connect()
	h.node.refused(t, request{path: s.one("price"), accept: asJSON}, http.StatusNotFound)
	hasNoEvent(t, e)

	h.register(e)
	h.AwaitFailure()
	h.start()
	h.awaitOnline()
	h.lose()
	h.node.refused(t, request{path: s.one("price"), accept: asJSON}, http.StatusServiceUnavailable)
	hasNoEvent(t, e)
}

func TestACopyOfTheFolderIsNothingForAnotherNode(t *testing.T) {
	t.Parallel()
	h, s := newMember(t, env)
	h.stop()
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(h.Root)); err != nil {
		t.Fatal(err)
	}
	other := makeHub(t, env.ServerURL(), inDir(copied), func(o *hubproc.Options) { o.Offline = true })
	other.IdentifyAs(env.Cluster, "system:masters")
	other.start()
	other.withheld(s, "")
	// The node itself goes on.
	h.cut()
	h.start()
	h.node.get(t, s.one("price"), asJSON)
}
