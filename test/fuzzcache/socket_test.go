package fuzzcache

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strings"

	"github.com/edgehub-io/edgehub/test/internal/rawclient"
)

// mayUpgrade returns a client that asks for a watch over WebSocket in some cases, as fabric8's does. HTTP/2
// cannot upgrade, and only JSON comes in text messages.
func (c *client) mayUpgrade(r *rand.Rand, f *form) *client {
	if strings.HasPrefix(c.base, "https:") || f.table() || !strings.HasSuffix(f.kind, "JSON") || r.IntN(2) == 0 {
		return c
	}
	return c.with(rawclient.WebSocket(c.base))
}

// asStream makes the body of an answer 101 that of an HTTP watch. It ends with ctx.
func asStream(ctx context.Context, res *http.Response) {
	body := &rawclient.Messages{ReadCloser: res.Body}
	context.AfterFunc(ctx, func() { _ = body.Close() })
	res.Body = body
}
