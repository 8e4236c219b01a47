package cache

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/patch"
	"github.com/edgehub-io/edgehub/cache/wire"
)

const (
	urlNode       = "/api/v1/nodes/n"
	urlNodeStatus = urlNode + "/status"
	strategic     = "application/strategic-merge-patch+json"
	account       = "system:serviceaccount:ns:"
	flannel       = account + "flannel.v1" // a token of this user's
	publicIP      = "flannel.alpha.coreos.com/public-ip"
	backendData   = "flannel.alpha.coreos.com/backend-data"
	merge         = "application/merge-patch+json"

	// networkUp is what flannel writes at each start.
	networkUp = `{"status":{"conditions":[{"type":"NetworkUnavailable","status":"False","lastHeartbeatTime":"2026-01-01T00:00:00Z","lastTransitionTime":"2026-01-01T00:00:00Z","reason":"FlannelIsUp","message":"up"}]}}`
)

// newAddress is what flannel writes where its annotations are not right.
func newAddress(ip string) string {
	return fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, publicIP, ip)
}

// cloudNode is the Node n as the apiserver has it, with an annotation that flannel wrote before the
// node had a hub.
type cloudNode struct {
	mu      sync.Mutex
	node    *corev1.Node
	patches []string       // Authorization, path and body of each
	refuse  map[string]int // codes by Authorization
}

func newCloudNode(u *upstream) *cloudNode {
	s := &cloudNode{node: &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}, refuse: map[string]int{}}
	s.node.Name, s.node.UID, s.node.ResourceVersion = "n", "u-n", "50"
	s.node.Annotations = map[string]string{publicIP: "10.0.0.1", "ours": "x"}
	for manager, fields := range map[string]string{
		"flanneld": `{"f:metadata":{"f:annotations":{".":{},"f:` + publicIP + `":{},"f:` + backendData + `":{},"f:node.alpha.kubernetes.io/ttl":{},"f:k8s.io/a":{}}},` +
			`"f:status":{"f:conditions":{"k:{\"type\":\"NetworkUnavailable\"}":{}}}}`,
		"kubectl-annotate": `{"f:metadata":{"f:annotations":{".":{},"f:ours":{}}}}`,
	} {
		s.node.ManagedFields = append(s.node.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "status", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
		})
	}
	u.on("get", s.answer)
	return s
}

func (s *cloudNode) answer(r *http.Request) *http.Response {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodPatch {
		body, _ := io.ReadAll(r.Body)
		who := r.Header.Get("Authorization")
		s.patches = append(s.patches, who+" "+r.URL.Path+" "+string(body))
		if code := s.refuse[who]; code != 0 {
			return respond(code, fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d}`, code))
		}
		next, err := patch.Apply(patch.Request{Method: r.Method, ContentType: r.Header.Get("Content-Type"), Body: body}, s.node)
		if err != nil {
			return respond(http.StatusConflict, `{"kind":"Status","apiVersion":"v1","status":"Failure"}`)
		}
		s.node = next.(*corev1.Node)
		s.node.ResourceVersion = "6" + s.node.ResourceVersion
	}
	_, body, err := convert.EncodeBody("application/json", s.node)
	if err != nil {
		panic(err)
	}
	return respond(http.StatusOK, string(body))
}

// sent returns the patches since the last call.
func (s *cloudNode) sent() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.patches
	s.patches = nil
	return all
}

func (s *cloudNode) address() string { return s.annotation(publicIP) }

func (s *cloudNode) annotation(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node.Annotations[name]
}

// patchNode sends a PATCH as flanneld would, and returns the object of the answer, or nil.
func patchNode(ctx context.Context, t *testing.T, c *Cache, url, contentType, body string) (*corev1.Node, int) {
	t.Helper()
	r := newRequest(ctx, http.MethodPatch, url)
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("User-Agent", "flanneld/v0.0.0 (linux/amd64) kubernetes/$Format")
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(body)), nil }
	r.Body, _ = r.GetBody()
	res, err := c.RoundTrip(r)
	if err != nil {
		t.Logf("PATCH %s %.100s: %v", url, body, err)
		return nil, http.StatusServiceUnavailable // the proxy's
	}
	return readNode(t, res), res.StatusCode
}

func readNode(t *testing.T, res *http.Response) *corev1.Node {
	t.Helper()
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	object, err := convert.DecodeBody("application/json", body, wire.TypeMeta{})
	if err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	n, _ := object.(*corev1.Node)
	return n
}

// addressFor is the address that a caller reads in the Node.
func addressFor(ctx context.Context, t *testing.T, c *Cache) string {
	t.Helper()
	return annotationFor(ctx, t, c, publicIP)
}

func annotationFor(ctx context.Context, t *testing.T, c *Cache, name string) string {
	t.Helper()
	res, err := c.RoundTrip(newRequest(ctx, http.MethodGet, urlNode))
	if err != nil {
		return err.Error()
	}
	return readNode(t, res).Annotations[name]
}

// afterReboot starts, and restarts, a hub without the cloud: before, the node, flannel and a pod have read
// the Node, and flannel has told that the network is up.
func afterReboot(t *testing.T, prepare func(s *cloudNode, c *Cache)) (*upstream, *cloudNode, func() *Cache) {
	t.Helper()
	u := newUpstream()
	s := newCloudNode(u)
	dir := t.TempDir()
	c, stop := runIn(t, dir, u)
	if _, code := patchNode(as(t.Context(), flannel), t, c, urlNodeStatus, strategic, networkUp); code != http.StatusOK {
		t.Fatalf("flannel's PATCH with the cloud: %d", code)
	}
	if prepare != nil {
		prepare(s, c)
	}
	for _, ctx := range []context.Context{t.Context(), as(t.Context(), flannel), as(t.Context(), account+"pod.v1")} {
		if got := addressFor(ctx, t, c); got != "10.0.0.1" {
			t.Fatalf("before: %s", got)
		}
	}
	s.sent()
	u.goAway()
	return u, s, func() *Cache {
		stop()
		c := openCache(t, dir, u)
		stop = runCache(t, c)
		synctest.Wait()
		return c
	}
}

// flannel has another address, or another key, after a boot without the cloud, and does not start unless it can write that. It
// writes only what differs, and while the cloud was there it wrote nothing through this hub but that the network is up. These are its
// patches, by backend.
func TestACNIAgentAnnotatesItsNodeOffline(t *testing.T) {
	const key = `{\"PublicKey\":\"HIgo9xNzJMWLKASShiTqIybxZ0U3wGLiUeJ1PKf8ykw=\"}`
	for backend, test := range map[string]struct{ contentType, body, name, want string }{
		"vxlan, host-gw": {strategic, newAddress("10.0.0.9"), publicIP, "10.0.0.9"},
		"vxlan, whose MAC was not kept": {
			strategic, `{"metadata":{"annotations":{"` + backendData + `":"{\"VNI\":1,\"VtepMAC\":\"12:c6:65:89:b4:e4\"}","` + publicIP + `":"10.0.0.9"}}}`, publicIP, "10.0.0.9",
		},
		"wireguard, which has another key after each boot": {
			strategic, `{"metadata":{"annotations":{"` + backendData + `":"` + key + `"}}}`, backendData, strings.ReplaceAll(key, `\`, ""),
		},
		"wireguard at another address": {
			strategic, `{"metadata":{"annotations":{"` + backendData + `":"` + key + `","` + publicIP + `":"10.0.0.9"}}}`, publicIP, "10.0.0.9",
		},
		"none of flannel's: a JSON merge patch":          {merge + "; charset=utf-8", newAddress("10.0.0.9"), publicIP, "10.0.0.9"},
		"none of flannel's: an annotation that it takes": {merge, `{"metadata":{"annotations":{"` + publicIP + `":null}}}`, publicIP, ""},
	} {
		bubble(t, backend, func(t *testing.T) {
			u, s, start := afterReboot(t, nil)
			c := start()
			ctx := as(t.Context(), flannel)
			got, code := patchNode(ctx, t, c, urlNodeStatus, test.contentType, test.body)
			if code != http.StatusOK || got.Annotations[test.name] != test.want || got.Annotations["ours"] != "x" {
				t.Fatalf("the PATCH: %d, %v", code, got)
			}
			if _, code := patchNode(ctx, t, c, urlNodeStatus, strategic, networkUp); code != http.StatusOK {
				t.Errorf("the PATCH of the condition: %d", code)
			}
			for who, ctx := range map[string]context.Context{"the node": t.Context(), "flannel": ctx, "a pod": as(t.Context(), account+"pod.v1")} {
				if got := annotationFor(ctx, t, c, test.name); got != test.want {
					t.Errorf("%s reads %s", who, got)
				}
			}
			u.comeBack()
			time.Sleep(time.Hour)
			sent := s.sent()
			if len(sent) != 1 || !strings.HasPrefix(sent[0], "Bearer "+flannel+" "+urlNodeStatus+" ") || s.annotation(test.name) != test.want {
				t.Errorf("sent %v, and the cloud has %s", sent, s.annotation(test.name))
			}
		})
	}
}

// The token of a patch is in no file. Patches of one account wait as one, up to a bound.
func TestNodePatchesAreSentAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, s, start := afterReboot(t, nil)
		c := start()
		ctx := as(t.Context(), flannel)
		key := func(n int) string {
			return `{"metadata":{"annotations":{"` + backendData + `":"` + strings.Repeat("k", n) + `"}}}`
		}
		for _, one := range []struct {
			body string
			want int
		}{{newAddress("10.0.0.8"), 200}, {key(9), 200}, {newAddress("10.0.0.9"), 200}, {key(16 << 10), 503}} {
			if _, code := patchNode(ctx, t, c, urlNodeStatus, strategic, one.body); code != one.want {
				t.Fatalf("the PATCH %.90s: %d", one.body, code)
			}
		}
		c = start()
		if got := addressFor(t.Context(), t, c); got != "10.0.0.9" {
			t.Errorf("after a restart, the node reads %s", got)
		}
		u.comeBack()
		time.Sleep(time.Hour)
		if sent := s.sent(); len(sent) != 0 {
			t.Errorf("sent without a token: %v", sent)
		}
		ask(ctx, t, c, http.MethodGet, urlNode)
		time.Sleep(time.Hour)
		if sent := s.sent(); len(sent) != 1 || s.address() != "10.0.0.9" || s.annotation(backendData) != strings.Repeat("k", 9) {
			t.Errorf("sent %v, and the cloud has %s", sent, s.address())
		}
	})
}

// A node has one or two agents.
func TestFewAccountsPatchTheNodeOffline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		agent := func(i int) context.Context { return as(t.Context(), fmt.Sprint(account, "agent", i, ".v1")) }
		_, _, start := afterReboot(t, func(_ *cloudNode, c *Cache) {
			for i := range 30 {
				ask(agent(i), t, c, http.MethodGet, urlNode)
				patchNode(agent(i), t, c, urlNodeStatus, strategic, networkUp)
			}
		})
		c, taken := start(), 0
		for i := range 30 {
			if _, code := patchNode(agent(i), t, c, urlNodeStatus, strategic, newAddress("10.0.0.9")); code == http.StatusOK {
				taken++
			}
		}
		if taken < 15 || taken > 16 { // flannel may be one of them
			t.Errorf("%d accounts patch the Node", taken)
		}
	})
}

func TestWhatNobodyWritesToTheNodeOffline(t *testing.T) {
	address := newAddress("10.0.0.9")
	for _, c := range []struct {
		name, token, url, contentType, body string
	}{
		{"another node", flannel, "/api/v1/nodes/other/status", strategic, address},
		{"the Node itself, of which only the status was written", flannel, urlNode, strategic, address},
		{"another program's annotation", flannel, urlNodeStatus, strategic, `{"metadata":{"annotations":{"ours":"y"}}}`},
		{"an annotation of no program's", flannel, urlNodeStatus, strategic, `{"metadata":{"annotations":{"new":"y"}}}`},
		{"an annotation of Kubernetes' own", flannel, urlNodeStatus, strategic, `{"metadata":{"annotations":{"node.alpha.kubernetes.io/ttl":"1"}}}`},
		{"another one of Kubernetes' own", flannel, urlNodeStatus, strategic, `{"metadata":{"annotations":{"k8s.io/a":"1"}}}`},
		{"by another program", flannel, urlNodeStatus + "?fieldManager=kubectl-annotate", strategic, address},
		{"nothing", flannel, urlNodeStatus, strategic, `{}`},
		{"all annotations", flannel, urlNodeStatus, strategic, `{"metadata":{"annotations":null}}`},
		{"a directive", flannel, urlNodeStatus, strategic, `{"metadata":{"annotations":{"$patch":"replace","` + publicIP + `":"10.0.0.9"}}}`},
		{"labels in another case", flannel, urlNodeStatus, strategic, `{"metadata":{"annotations":{"` + publicIP + `":"10.0.0.9"}},"METADATA":{"labels":{"a":"b"}}}`},
		{"a finalizer", flannel, urlNodeStatus, strategic, `{"metadata":{"annotations":{"` + publicIP + `":"10.0.0.9"},"finalizers":["a/b"]}}`},
		{"two objects", flannel, urlNodeStatus, strategic, address + "{}"},
		{"no object", flannel, urlNodeStatus, strategic, `[]`},
		{"another Node of the name", flannel, urlNodeStatus, strategic, strings.Replace(address, `{"metadata":{`, `{"metadata":{"uid":"other",`, 1)},
		{"server-side apply", flannel, urlNodeStatus, "application/apply-patch+yaml", address},
		{"a patch of no type", flannel, urlNodeStatus, "", address},
		{"two conditions", flannel, urlNodeStatus, strategic, `{"status":{"conditions":[{"type":"NetworkUnavailable"},{"type":"Ready"}]}}`},
		{"one more annotation", flannel, urlNodeStatus, strategic, `{"metadata":{"annotations":{"` + publicIP + `":"10.0.0.9","ours":"y"}}}`},
		{"a label", flannel, urlNodeStatus, strategic, `{"metadata":{"labels":{"a":"b"}}}`},
		{"a label besides", flannel, urlNodeStatus, strategic, `{"metadata":{"labels":{"a":"b"},"annotations":{"` + publicIP + `":"10.0.0.9"}}}`},
		{"a taint", flannel, urlNodeStatus, strategic, `{"spec":{"taints":[]}}`},
		{"another condition", flannel, urlNodeStatus, strategic, `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`},
		{"the deletion of a condition", flannel, urlNodeStatus, strategic, `{"status":{"conditions":[{"type":"NetworkUnavailable","$patch":"delete"}]}}`},
		{"all conditions", flannel, urlNodeStatus, merge, networkUp},
		{"addresses", flannel, urlNodeStatus, strategic, `{"status":{"addresses":[]}}`},
		{"a JSON patch", flannel, urlNodeStatus, "application/json-patch+json", `[]`},
		{"too much", flannel, urlNodeStatus, strategic, newAddress(strings.Repeat("9", 64<<10))},
		{"a person", "person.v1", urlNodeStatus, strategic, address},
		{"an account that never wrote", account + "pod.v1", urlNodeStatus, strategic, address},
		{"an account whose write was refused", account + "refused.v1", urlNodeStatus, strategic, address},
		{"an account whose write was refused at last", account + "revoked.v1", urlNodeStatus, strategic, address},
		{"an unknown token", account + "flannel.v2", urlNodeStatus, strategic, address},
	} {
		bubble(t, c.name, func(t *testing.T) {
			u, s, start := afterReboot(t, func(s *cloudNode, hub *Cache) {
				s.refuse["Bearer "+account+"refused.v1"] = http.StatusForbidden
				for _, token := range []string{account + "refused.v1", account + "revoked.v1", "person.v1"} {
					ask(as(t.Context(), token), t, hub, http.MethodGet, urlNode)
					patchNode(as(t.Context(), token), t, hub, urlNodeStatus, strategic, networkUp)
				}
				s.refuse["Bearer "+account+"revoked.v1"] = http.StatusForbidden
				patchNode(as(t.Context(), account+"revoked.v1"), t, hub, urlNodeStatus, strategic, networkUp)
			})
			hub := start()
			if _, code := patchNode(as(t.Context(), c.token), t, hub, c.url, c.contentType, c.body); code != http.StatusServiceUnavailable && (code != http.StatusConflict || !strings.Contains(c.body, "uid")) {
				t.Errorf("answered %d", code)
			}
			if got := addressFor(t.Context(), t, hub); got != "10.0.0.1" {
				t.Errorf("the node reads %s", got)
			}
			u.comeBack()
			time.Sleep(time.Hour)
			if sent := s.sent(); len(sent) != 0 {
				t.Errorf("sent %v", sent)
			}
		})
	}
}

func TestANodePatchThatTheCloudRefusesIsTakenBack(t *testing.T) {
	for _, code := range []int{http.StatusForbidden, http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity} {
		bubble(t, http.StatusText(code), func(t *testing.T) {
			u, s, start := afterReboot(t, nil)
			c := start()
			ctx := as(t.Context(), flannel)
			s.refuse["Bearer "+flannel] = code
			if _, code := patchNode(ctx, t, c, urlNodeStatus, strategic, newAddress("10.0.0.9")); code != http.StatusOK {
				t.Fatalf("the PATCH: %d", code)
			}
			u.comeBack()
			get(t, c, urlNode) // after which reports settle
			time.Sleep(time.Hour)
			if sent := s.sent(); len(sent) != 1 || s.address() != "10.0.0.1" {
				t.Errorf("sent %v, and the cloud has %s", sent, s.address())
			}
			u.goAway()
			synctest.Wait()
			for _, ctx := range []context.Context{t.Context(), ctx} {
				if got := addressFor(ctx, t, c); got != "10.0.0.1" {
					t.Errorf("in the next outage: %s", got)
				}
			}
			_, again := patchNode(ctx, t, c, urlNodeStatus, strategic, newAddress("10.0.0.9"))
			if want := code == http.StatusForbidden || code == http.StatusUnprocessableEntity; (again != http.StatusOK) != want {
				t.Errorf("in the next outage, a PATCH: %d", again)
			}
		})
	}
}

func TestANodePatchDoesNotOverwriteANewerOne(t *testing.T) {
	for _, c := range []struct {
		name, body string
		meanwhile  func(*corev1.Node)
	}{
		{"the agent's own, with the cloud", newAddress("10.0.0.9"), nil}, // which may overtake the older one
		{"one of a version that has passed", strings.Replace(newAddress("10.0.0.9"), `{"metadata":{`, `{"metadata":{"resourceVersion":"650",`, 1), func(n *corev1.Node) { n.ResourceVersion = "700" }},
		{"one of another Node of the name", newAddress("10.0.0.9"), func(n *corev1.Node) { n.UID, n.ResourceVersion = "u-other", "700" }},
	} {
		bubble(t, c.name, func(t *testing.T) {
			u, s, start := afterReboot(t, nil)
			hub := start()
			ctx := as(t.Context(), flannel)
			if _, code := patchNode(ctx, t, hub, urlNodeStatus, strategic, c.body); code != http.StatusOK {
				t.Fatalf("the PATCH: %d", code)
			}
			if hub = start(); c.meanwhile != nil { // so that it waits
				s.mu.Lock()
				s.node.Annotations[publicIP] = "10.0.0.7"
				c.meanwhile(s.node)
				s.mu.Unlock()
				u.comeBack()
			} else {
				u.comeBack()
				patchNode(ctx, t, hub, urlNodeStatus, strategic, newAddress("10.0.0.7"))
			}
			ask(ctx, t, hub, http.MethodGet, urlNode)
			time.Sleep(time.Hour)
			if got := s.address(); got != "10.0.0.7" {
				t.Errorf("the cloud has %s", got)
			}
		})
	}
}
