package relist

import (
	"net/http"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/view"
)

// Commit makes a list, the answer to a query, the state of its view. template is a request
// of a client that may read the view.
func (l *Lister) Commit(q *query.Query, template *http.Request, b *view.Builder, version string) {
	v := b.View
	if !b.Consistent {
		l.Views.InheritSeen(q, v)
	}
	switch l.commit(b, version) {
	case view.Restored:
		l.Refresh(v, template)
	case view.Outdated:
		if !b.Consistent {
			l.Verify(v, template)
		}
	case view.Committed:
		if v.Behind() { // the answer came from an apiserver's watch cache that lags behind another
			l.Refresh(v, template)
		}
	}
	if !l.Views.EnforceLimit(v) {
		l.Log.Warn("not kept: it takes more than --cache-max-bytes alone", "view", v.String(), "max", l.Max)
	}
}

// commit makes a list the state of its view. After view.Restored the view is empty: the caller
// must list it again.
func (l *Lister) commit(b *view.Builder, version string) view.CommitResult {
	result := l.Views.Commit(b, version)
	if result == view.Restored {
		l.restored(b.View, version)
	}
	return result
}
