package cache

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/test/internal/poll"
)

func (a answer) unavailableStatus(t *testing.T) {
	t.Helper()
	if a.status != http.StatusServiceUnavailable {
		t.Errorf("want 503; got %v", a)
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
