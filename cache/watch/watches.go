package watch

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/edgehub-io/edgehub/cache/derived"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/tee"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// maxResumes is how many watches resume at once.
const maxResumes = 8

// Watches are the watches of all clients. It is safe for concurrent use.
type Watches struct {
	Options
	checks  *checks
	resumes *semaphore.Weighted
}

// Upstream sends requests to the apiservers.
type Upstream interface {
	http.RoundTripper
	// WaitUp returns nil as soon as the user of a request with ctx can reach an
	// apiserver, or ctx's error.
	WaitUp(ctx context.Context) error
	// Lost returns a channel that is closed while the user of a request with ctx can reach none.
	Lost(ctx context.Context) <-chan struct{}
}

// Options are options of watches. All are required.
type Options struct {
	Up      Upstream
	Views   *view.Views
	Derived *derived.Objects
	Outages *Outages
	Jitter  time.Duration // over which watches resume after an outage
	Log     *slog.Logger
	// Background runs a function in a new goroutine, with a context that ends when the hub
	// stops. It returns false if the hub is stopping already.
	Background func(func(context.Context)) bool
	// SameUser returns nil if the credentials of a request that the hub has sent again still
	// belong to this user. Its error is identity.ErrReassigned, or another one while that is
	// unknown.
	SameUser func(user string, again *http.Request) error
	Expired  func() // called for each watch whose client has to list again
}

// New returns an empty Watches.
func New(o Options) *Watches {
	return &Watches{Options: o, checks: newChecks(&o), resumes: semaphore.NewWeighted(maxResumes)}
}

// Verify is called when an apiserver has returned a state older than the view. It asks in the background whether another
// one has a newer state, with a request of a client that may list the view.
func (w *Watches) Verify(v *view.View, template *http.Request) { w.checks.verify(v, template) }

// Keep replaces the body of a watch by one that stays open during outages. began is view.View.Began when the watch was
// opened.
func (w *Watches) Keep(res *http.Response, req *http.Request, q *query.Query, repr wire.Representation, began view.Began) {
	s := w.newStream(req, q, repr, began)
	if err := s.attach(res, s.at); err != nil {
		w.logUnkept(err)
		s.release()
		return
	}
	res.Body = s
}

func (w *Watches) logUnkept(err error) { tee.LogUnkept(w.Log, err) }
