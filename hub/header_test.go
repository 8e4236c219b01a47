package hub

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestAHeaderAtAProxyPortIsBounded(t *testing.T) {
	n := newNode(t, echoToken)
	n.start(t)
	n.mustBoundHeaders(t, "http://"+n.config.ProxyAddress+"/version", 64<<10)
}

// mustBoundHeaders checks that headers of up to limit bytes are read, and no larger ones.
// On a connection that has carried a request, net/http lets 4 KiB more pass.
func (n *node) mustBoundHeaders(t *testing.T, url string, limit int) {
	t.Helper()
	const smallest, slop, reused = 1 << 10, 1 << 10, 4 << 10
	for _, tt := range []struct {
		sizes []int // of the headers on one connection
		code  int   // of the answer to the last
	}{
		{[]int{limit - 2*slop}, http.StatusOK},
		{[]int{limit + slop}, http.StatusRequestHeaderFieldsTooLarge},
		{[]int{smallest, limit - 2*slop}, http.StatusOK},
		{[]int{smallest, limit + slop + reused}, http.StatusRequestHeaderFieldsTooLarge},
	} {
		t.Run(fmt.Sprint("headers of ", tt.sizes, " bytes"), func(t *testing.T) {
			transport := &http.Transport{MaxConnsPerHost: 1}
			defer transport.CloseIdleConnections()
			code := 0
			for _, size := range tt.sizes {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("X-Large", strings.Repeat("x", size))
				res, err := transport.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, res.Body); err != nil {
					t.Fatal(err)
				}
				res.Body.Close()
				code = res.StatusCode
			}
			if code != tt.code {
				t.Errorf("the last got %d, want %d", code, tt.code)
			}
		})
	}
}
