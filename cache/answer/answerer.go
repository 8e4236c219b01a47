package answer

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/derived"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/view"
)

// Answerer answers reads while the cloud is away. It is safe for concurrent use.
type Answerer struct {
	Options
	production *production
}

// Options are options of answers. All are required.
type Options struct {
	Views   *view.Views
	Derived *derived.Objects
}

// New returns answers from views.
func New(o Options) *Answerer {
	return &Answerer{Options: o, production: newProduction()}
}

// Reserve adds n to the bytes of large pieces that wait for clients, and returns the sum.
func (a *Answerer) Reserve(n int64) int64 { return a.production.large.Add(n) }

// Request is a request that is answered offline.
type Request struct {
	Answers  *Answerer
	HTTP     *http.Request
	Resource schema.GroupVersionResource
	Query    *query.Query // nil unless objects are read
}
