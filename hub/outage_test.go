package hub

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/proxy/proxytest"
)

// offlineSince returns since when the hub reports the cloud as away.
func offlineSince(t *testing.T, n *node, h *Hub) string {
	t.Helper()
	proxytest.Until(t, "the hub knows that the cloud is away", func() bool {
		fetch(t, http.DefaultClient, "http://"+n.config.ProxyAddress+"/version")
		return h.offline() != ""
	})
	return h.offline()
}

func answersAll(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }

// An outage that continues across a restart of the hub keeps its beginning.
func TestOfflineSinceSurvivesARestart(t *testing.T) {
	n := newNode(t, answersAll)
	h, stop := n.start(t)
	if code, _ := fetch(t, http.DefaultClient, "http://"+n.config.ProxyAddress+"/version"); code != http.StatusOK {
		t.Fatalf("%d", code)
	}
	n.api.Close()
	began := offlineSince(t, n, h)
	for range 2 {
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1100 * time.Millisecond) // times are given to the second
		h, stop = n.start(t)
		if again := offlineSince(t, n, h); again != began {
			t.Errorf("it was %q, and after a restart it is %q", began, again)
		}
		if state := h.cacheState().Cloud; !strings.Contains(began, state.Since.UTC().Format(time.RFC3339)) || !state.APIServers[0].Since.Equal(state.Since) {
			t.Errorf("/debug/cache says %v", state)
		}
	}
}

// A hub that stopped online and starts offline reports when the cloud answered last.
func TestOfflineSinceTheCloudAnsweredLast(t *testing.T) {
	n := newNode(t, answersAll)
	_, stop := n.start(t)
	fetch(t, http.DefaultClient, "http://"+n.config.ProxyAddress+"/version")
	before := time.Now().Truncate(time.Second)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	after := time.Now()
	n.api.Close()
	time.Sleep(1100 * time.Millisecond)
	h, _ := n.start(t)
	offlineSince(t, n, h)
	if since := h.upstream.State().Since; since.Before(before) || since.After(after) {
		t.Errorf("it is away since %v; it answered last between %v and %v", since, before, after)
	}
}

// The file is removed when the cloud answers, and a malformed file does no harm.
func TestAnOutageThatIsOverIsRemoved(t *testing.T) {
	for name, text := range map[string]string{
		"an outage":            `{"lost":"2024-05-06T07:08:09Z"}`,
		"the last answer":      `{"answered":"2024-05-06T07:08:09Z"}`,
		"a wrong clock":        `{"lost":"2093-05-06T07:08:09Z"}`,
		"no JSON":              `{"lost":`,
		"nothing":              ``,
		"nothing that is ours": `{"a":1}`,
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, answersAll)
			if err := os.Mkdir(n.path("root"), 0o700); err != nil {
				t.Fatal(err)
			}
			n.write(t, "root/outage.json", []byte(text))
			h, _ := n.start(t)
			fetch(t, http.DefaultClient, "http://"+n.config.ProxyAddress+"/version")
			if strings.Contains(text, "20") {
				proxytest.Until(t, "the file is gone", func() bool {
					_, err := os.Stat(n.path("root/outage.json"))
					return errors.Is(err, fs.ErrNotExist)
				})
			}
			lost := time.Now().Truncate(time.Second)
			n.api.Close()
			offlineSince(t, n, h)
			if since := h.upstream.State().Since; since.Before(lost) {
				t.Errorf("it is away since %v, and was there at %v", since, lost)
			}
		})
	}
}
