package cache

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/edgehub-io/edgehub/cache/offline"
	"github.com/edgehub-io/edgehub/cache/overlay"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/records"
	"github.com/edgehub-io/edgehub/cache/relist"
	"github.com/edgehub-io/edgehub/cache/tee"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// maxResumes is how many watches are opened again at once.
const maxResumes = 8

// watches are the watches of all clients. It is safe for concurrent use.
type watches struct {
	watchesOptions
	resumes *semaphore.Weighted
}

// watchesUpstream is the way to the apiservers.
type watchesUpstream interface {
	http.RoundTripper
	// WaitUp returns nil as soon as the sender of a request with ctx can reach an
	// apiserver, or ctx's error.
	WaitUp(ctx context.Context) error
}

// watchesOptions are options of watches. All are required.
type watchesOptions struct {
	up      watchesUpstream
	isUp    func() bool // whether the node can reach an apiserver
	views   *view.Views
	records *records.Records
	lister  *relist.Lister
	outages *relist.Outages
	overlay *overlay.Overlay
	answers *offline.Answers
	// stillOf is that of the lister.
	stillOf func(user string, again *http.Request) error
	jitter  time.Duration // over which watches are opened again after an outage
	now     func() time.Time
	log     *slog.Logger
}

func newWatches(o watchesOptions) *watches {
	return &watches{watchesOptions: o, resumes: semaphore.NewWeighted(maxResumes)}
}

// keep makes the answer to a watch one that goes on over outages. began is the version of its
// view when the watch was opened.
func (w *watches) keep(res *http.Response, req *http.Request, q *query.Query, repr wire.Representation, began string) {
	s := w.newStream(req, q, repr, began)
	if err := s.attach(res); err != nil {
		w.looked(err)
		s.release()
		return
	}
	res.Body = s
}

func (w *watches) looked(err error) { tee.LogUnkept(w.log, err) }
