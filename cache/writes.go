package cache

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// writes is what is not reading: what nodes and pods write while the cloud is
// away, and what is kept for that.
type writes struct {
	cache *Cache
}

func newWrites(c *Cache) (*writes, error) { return &writes{cache: c}, nil }

// online looks at the answer to a request that is no read of an object.
func (w *writes) online(x *exchange, res *http.Response) {}

func (w *writes) offline(x *exchange) (*http.Response, error) { return nil, errNeverRead }

func (w *writes) overlaid(x *exchange, o object) object { return o }

func (w *writes) run(ctx context.Context) error { <-ctx.Done(); return nil }

// info2 is the resource that the request is about.
func (x *exchange) resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: x.info.APIGroup, Version: x.info.APIVersion, Resource: x.info.Resource}
}
