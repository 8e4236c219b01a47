package hub

import (
	"net/http"
	"strings"
	"testing"
)

func TestAHeaderAtAProxyPortIsBounded(t *testing.T) {
	n := newNode(t, echoToken)
	n.start(t)
	for size, code := range map[int]int{56 << 10: http.StatusOK, 66 << 10: http.StatusRequestHeaderFieldsTooLarge} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+n.config.ProxyAddress+"/version", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Large", strings.Repeat("x", size))
		req.Close = true // on a connection that is used again, net/http buffers 4096 bytes beyond the limit
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != code {
			t.Errorf("a header of %d bytes got %d, want %d", size, res.StatusCode, code)
		}
	}
}
