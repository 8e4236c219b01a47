package cache

import (
	"log/slog"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/edgehub-io/edgehub/cache/overlay"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/view"
)

// answers are the answers to reads while the cloud is away. It is safe for concurrent use.
type answers struct {
	answersOptions
	production *production
	unkept     *unkept
}

// answersOptions are options of answers. All are required.
type answersOptions struct {
	views   *view.Views
	overlay *overlay.Overlay
	now     func() time.Time
	log     *slog.Logger
}

func newAnswers(o answersOptions) *answers {
	return &answers{answersOptions: o, production: newProduction(), unkept: newUnkept()}
}

// reserve takes bytes of what may wait for clients in large pieces, and returns how many are
// taken.
func (a *answers) reserve(n int64) int64 { return a.production.reserve(n) }

// notKept notes that a query was answered in a form that is not kept.
func (a *answers) notKept(q *query.Query) { a.unkept.add(q) }

// Request is one that is answered offline.
type Request struct {
	answers *answers
	req     *http.Request
	info    *apirequest.RequestInfo
	query   *query.Query // nil of what is no read of objects
	node    bool         // the node itself asks
}

func (r *Request) resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: r.info.APIGroup, Version: r.info.APIVersion, Resource: r.info.Resource}
}
