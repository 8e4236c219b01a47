package cache

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
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
