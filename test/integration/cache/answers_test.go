package cache

import (
	"net/http"
	"strings"
	"testing"
)

// offline answers say of themselves what an apiserver's do.
func TestOfflineAnswersLookLikeAnApiservers(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.create("c")
	watching := with(s.path, watchQuery+"&timeoutSeconds=1&resourceVersion=0")
	online := map[[2]string]http.Header{}
	for _, accept := range []string{protobuf, asJSON, kubelet, metaList} {
		for _, path := range []string{s.path, s.one("c"), watching} {
			if a := h.node.do(t, request{path: path, accept: accept}); a.status == http.StatusOK {
				online[[2]string{path, accept}] = a.header
			}
		}
	}
	h.cut()
	for asked, header := range online {
		a := h.node.do(t, request{path: asked[0], accept: asked[1], gzip: true})
		if a.status != http.StatusOK {
			t.Errorf("%s: %v", asked, a)
			continue
		}
		for _, name := range []string{"Content-Type", "Cache-Control"} {
			if got, want := a.header.Get(name), header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", asked, name, got, want)
			}
		}
		if len(inflated(t, a)) == 0 {
			t.Errorf("%s: the body is empty", asked)
		}
	}
}

// kubectl goes on reading what was read before.
func TestKubectlOffline(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.fill("c", 2)
	kubectl := h.kubectlGet(t, s)
	get := func(args ...string) (string, error) { return kubectl(append([]string{"configmaps"}, args...)...) }
	online, err := get("-o", "yaml")
	if err != nil {
		t.Fatal(err)
	}
	h.lose()
	if out, err := get("-o", "yaml"); err != nil || out != online {
		t.Errorf("kubectl get -o yaml: %v\n%s\nwant\n%s", err, out, online)
	}
	if out, err := get("-o", "wide"); err != nil || !strings.Contains(out, "c-000") || !strings.Contains(out, "c-001") {
		t.Errorf("kubectl get: %v: %s", err, out)
	}
}
