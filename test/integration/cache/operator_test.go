package cache

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// what an operator sees while the cloud is there and while it is away.
func TestWhatAnOperatorSees(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.fill("c", 3)
	const word = "swordfish-0f3a"
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "secret"}, StringData: map[string]string{"password": word}}
	if _, err := env.client.CoreV1().Secrets(s.name).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	list := h.node.servedList(t, s.path, protobuf)
	h.node.servedList(t, "/api/v1/namespaces/"+s.name+"/secrets", asJSON)
	token := s.account("alice")
	h.as(token).servedList(t, s.path, protobuf)

	if a := h.api.get(t, "/v1/readyz", ""); !strings.HasPrefix(string(a.body), "OK") {
		t.Errorf("online, readyz says %q", a.body)
	}
	if up, ok := h.metric("edgehub_upstream_up"); !ok || up != 1 {
		t.Errorf("online, edgehub_upstream_up is %v, %v", up, ok)
	}
	h.cut()
	h.node.servedList(t, s.path, protobuf)
	h.node.do(t, request{path: "/api/v1/pods"})
	if a := h.api.get(t, "/v1/readyz", ""); !strings.Contains(string(a.body), "offline") {
		t.Errorf("offline, readyz says %q", a.body)
	}
	for _, m := range []struct {
		name   string
		labels []string
		least  float64
	}{
		{"edgehub_cache_views", nil, 3},
		{"edgehub_cache_objects", nil, 5},
		{"edgehub_cache_bytes", nil, 500},
		{"edgehub_cache_requests_total", []string{`resource="configmaps"`, `result="hit"`}, 1},
		{"edgehub_cache_requests_total", []string{`resource="pods"`, `result="miss"`}, 1},
		{"edgehub_cache_commits_total", nil, 0},
		{"edgehub_cache_commit_seconds_count", nil, 0},
		{"edgehub_event_spool_events", nil, 0},
		{"edgehub_upstream_last_change_timestamp_seconds", nil, 1},
	} {
		if value, ok := h.metric(m.name, m.labels...); !ok || value < m.least {
			t.Errorf("%s%v is %v, %v; want at least %v", m.name, m.labels, value, ok, m.least)
		}
	}
	if up, ok := h.metric("edgehub_upstream_up"); !ok || up != 0 {
		t.Errorf("offline, edgehub_upstream_up is %v, %v", up, ok)
	}
	debug := h.api.get(t, "/debug/cache", "")
	var anything any
	if err := json.Unmarshal(debug.body, &anything); err != nil {
		t.Errorf("/debug/cache: %v", err)
	}
	for _, want := range []string{"configmaps", "secrets", s.name, list.version} {
		if !strings.Contains(string(debug.body), want) {
			t.Errorf("/debug/cache does not say %q: %s", want, debug.body)
		}
	}
	for _, no := range []string{word, base64.StdEncoding.EncodeToString([]byte(word)), "first of c-001", token, token[len(token)-20:]} {
		if strings.Contains(string(debug.body), no) {
			t.Errorf("/debug/cache gives %q away", no)
		}
	}
	h.connect()
	if !h.logged("level=WARN", "cannot be reached") || !h.logged("level=INFO", "again") {
		t.Error("the log does not say when the cloud was lost and came back")
	}
	h.stop()
	text, err := os.ReadFile(h.log)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(text, []byte(token)) || bytes.Contains(text, []byte(word)) {
		t.Error("the log gives a secret away")
	}
}

// nobody else on the machine reads what is kept, and with a key nobody at all.
func TestFilesAreTheHubsOwn(t *testing.T) {
	t.Parallel()
	for _, encrypted := range []bool{false, true} {
		t.Run(fmt.Sprintf("encrypted %v", encrypted), func(t *testing.T) {
			t.Parallel()
			var options []hubOption
			if encrypted {
				key := filepath.Join(t.TempDir(), "key")
				if err := os.WriteFile(key, []byte(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32))), 0o600); err != nil {
					t.Fatal(err)
				}
				options = append(options, withArgs("--cache-encryption-key-file="+key))
			}
			h, s := newHub(t, options...), newSpace(t)
			s.fill("c", 3)
			token := s.account("alice")
			h.node.servedList(t, s.path, protobuf)
			h.as(token).servedList(t, s.path, protobuf)
			h.stop()
			found := false
			err := filepath.WalkDir(h.cacheDir(), func(path string, entry fs.DirEntry, err error) error {
				if err != nil {
					return err
				}
				info, err := entry.Info()
				if err != nil {
					return err
				}
				if info.Mode().Perm()&0o077 != 0 {
					t.Errorf("%s has the mode %v", path, info.Mode())
				}
				if entry.IsDir() {
					return nil
				}
				content, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				found = found || bytes.Contains(content, []byte("first of c-001"))
				if bytes.Contains(content, []byte(token)) {
					t.Errorf("%s has the token of a client", path)
				}
				if encrypted && (bytes.Contains(content, []byte("c-001")) || bytes.Contains(content, []byte("alice"))) {
					t.Errorf("%s has the names of objects or users, though it is encrypted", path)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if found == encrypted {
				t.Errorf("the object is found in the files: %v", found)
			}
			h.cut()
			h.start()
			h.node.servedList(t, s.path, protobuf)
			h.as(token).servedList(t, s.path, protobuf)
		})
	}
}

// the node's own API answers offline, from what the kubelet has read, but does not
// pretend to have upgraded anything.
func TestTheNodesAPIOffline(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.pod(h.name, "p")
	s.pod(h.name+"x", "elsewhere")
	h.node.watch(t, "/api/v1/pods?"+watchListQuery+"&fieldSelector=spec.nodeName%3D"+h.name, kubelet).initial(t)
	h.cut()
	var pods struct {
		Kind  string       `json:"kind"`
		Items []corev1.Pod `json:"items"`
	}
	a := h.api.get(t, "/pods", "")
	if err := json.Unmarshal(a.body, &pods); err != nil || pods.Kind != "PodList" {
		t.Fatalf("%v: %v", err, a)
	}
	var names []string
	for i := range pods.Items {
		names = append(names, pods.Items[i].Name)
	}
	if !slices.Equal(names, []string{"p"}) {
		t.Errorf("GET /pods has %v", names)
	}
	upgrade := func(pod string) answer {
		return h.api.do(t, request{method: http.MethodPost, path: "/openyurt.io/v1/namespaces/" + s.name + "/pods/" + pod + "/upgrade"})
	}
	if a := upgrade("p"); a.status < 400 {
		t.Errorf("an upgrade, offline: %v", a)
	}
	if a := upgrade("nobody"); a.status != http.StatusNotFound && a.status != http.StatusServiceUnavailable {
		t.Errorf("an upgrade of what is not there, offline: %v", a)
	}
}

// the cache is bounded: what was not read for longest goes, as a whole, and what the
// kubelet reads stays.
func TestTheCacheIsBounded(t *testing.T) {
	t.Parallel()
	h, s := newHub(t, withArgs("--cache-max-bytes=1200000")), newSpace(t)
	alice := h.as(s.account("alice"))
	s.large("own", 5, 10_000)
	h.node.servedList(t, s.path, protobuf)
	var spaces []*space
	for range 5 {
		other := newSpace(t)
		other.large("c", 10, 30_000)
		other.allowFrom(s, "alice")
		spaces = append(spaces, other)
		alice.servedList(t, other.path, protobuf)
	}
	h.cut()
	h.node.servedList(t, s.path, protobuf)
	alice.servedList(t, spaces[4].path, protobuf)
	alice.servedList(t, spaces[3].path, protobuf)
	alice.refused(t, request{path: spaces[0].path, accept: protobuf}, http.StatusServiceUnavailable)
	alice.refused(t, request{path: spaces[0].one("c-001"), accept: protobuf}, http.StatusServiceUnavailable)
}
