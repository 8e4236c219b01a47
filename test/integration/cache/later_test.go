package cache

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// offline, a token that was issued for a pod is given again, and no other, also after a
// restart of the hub.
func TestTokensAreGivenAgain(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	pod := s.pod(h.name, "p")
	path := "/api/v1/namespaces/" + s.name + "/serviceaccounts/default/token"
	ask := func(c *client, uid, audience, accept string) answer {
		t.Helper()
		hour := int64(3607)
		body := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: &hour,
			BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "p", UID: pod.UID},
		}}
		body.Spec.BoundObjectRef.UID = types.UID(uid)
		if audience != "" {
			body.Spec.Audiences = []string{audience}
		}
		info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), accept)
		var out bytes.Buffer
		if err := scheme.Codecs.EncoderForVersion(info.Serializer, authenticationv1.SchemeGroupVersion).Encode(body, &out); err != nil {
			t.Fatal(err)
		}
		return c.send(t, http.MethodPost, path, accept, accept, out.Bytes())
	}
	token := func(a answer) string {
		t.Helper()
		if a.status != http.StatusCreated {
			t.Fatal(a)
		}
		return decodeAs[*authenticationv1.TokenRequest](t, a).Status.Token
	}
	token(ask(h.node, string(pod.UID), "", protobuf)) // the last one counts
	issued := token(ask(h.node, string(pod.UID), "", protobuf))
	vault := token(ask(h.node, string(pod.UID), "vault", asJSON))
	alice := h.as(s.account("alice"))
	alice.get(t, s.path, protobuf)
	check := func() {
		t.Helper()
		if got := token(ask(h.node, string(pod.UID), "", protobuf)); got != issued {
			t.Error("another token than the last that was issued")
		}
		if got := token(ask(h.node, string(pod.UID), "vault", asJSON)); got != vault {
			t.Error("another token than the last that was issued for this audience")
		}
		if got := token(ask(h.node, string(pod.UID), "", asJSON)); got != issued {
			t.Error("asked in JSON: another token than the last that was issued")
		}
		ask(h.node, string(pod.UID), "elsewhere", protobuf).unavailableStatus(t)
		ask(h.node, "11111111-1111-1111-1111-111111111111", "", protobuf).unavailableStatus(t)
		ask(alice, string(pod.UID), "", protobuf).unavailableStatus(t)
	}
	h.lose()
	check()
	h.stop()
	h.start()
	check()
	// The token is real: the cloud takes it.
	h.connect()
	holder := newClient(env.ServerURL(), rootsOnly(t), true)
	defer holder.close()
	holder.token = issued
	if a := holder.do(t, request{path: "/version"}); a.status != http.StatusOK {
		t.Errorf("the apiserver does not take the token: %v", a)
	}
}

func (a answer) unavailableStatus(t *testing.T) {
	t.Helper()
	if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
		t.Errorf("want 503 with Retry-After; got %v", a)
	}
}

// offline, events are kept, up to a bound, and arrive once, in order, when the cloud is
// back, also after a crash of the hub.
func TestEventsArriveLater(t *testing.T) {
	t.Parallel()
	const most = 5
	h, s := newHub(t, withArgs(fmt.Sprintf("--event-spool-max-count=%d", most))), newSpace(t)
	path := "/api/v1/namespaces/" + s.name + "/events"
	post := func(name string) answer {
		t.Helper()
		body := fmt.Appendf(nil, `{"kind":"Event","apiVersion":"v1","metadata":{"name":%q,"namespace":%q},"involvedObject":{"kind":"Pod","namespace":%q,"name":"p"},"reason":"Spooled","message":"m"}`, name, s.name, s.name)
		return h.node.send(t, http.MethodPost, path, asJSON, asJSON, body)
	}
	h.lose()
	for i := range most {
		if a := post(fmt.Sprintf("e-%d", i)); a.status != http.StatusCreated {
			t.Fatalf("event %d: %v", i, a)
		}
	}
	post("one-too-many").unavailableStatus(t)
	h.awaitDisk()
	h.kill()
	h.start()
	mark := env.audit.mark(t)
	h.connect()
	var names []string
	poll.Until(t, patience, "the events arrive", func() bool {
		list, err := env.client.CoreV1().Events(s.name).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=Spooled"})
		if err != nil {
			t.Fatal(err)
		}
		names = nil
		for _, e := range list.Items {
			names = append(names, e.Name)
		}
		return len(names) >= most
	})
	slices.Sort(names)
	if !slices.Equal(names, []string{"e-0", "e-1", "e-2", "e-3", "e-4"}) {
		t.Errorf("the events %v have arrived", names)
	}
	poll.Until(t, patience, "the spool is empty", func() bool {
		n, ok := h.metric("edgehub_event_spool_events")
		return ok && n == 0
	})
	posts := 0
	for _, r := range env.audit.since(t, mark, h.user) {
		if r.Verb == "create" && strings.HasPrefix(r.RequestURI, path) {
			posts++
		}
	}
	if posts != most {
		t.Errorf("%d events were posted, want %d", posts, most)
	}
	if a := post("online"); a.status != http.StatusCreated {
		t.Errorf("an event with the cloud there: %v", a)
	}
}
