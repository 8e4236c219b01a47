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
	result := b.Commit(version)
	l.Views.RecordDeletions(b)
	if result == view.Committed {
		l.Views.RecordDeletedPods(b, version)
	}
	switch result {
	case view.Restored:
		l.restored(v, version)
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

// restored is called when a view proved newer than the apiservers. Versions may mean other
// objects from now on, so it drops everything that is compared by version: views of the same
// resource, and Single views of the same store.
func (l *Lister) restored(v *view.View, version string) {
	l.Log.Warn("apiserver's versions have gone back: its store was restored from a backup; the cache follows", "view", v.String(), "version", version)
	back := v.Key.UserResource()
	for _, other := range l.Views.All() {
		if other.Key.UserResource().RestoredWith(back) && (other.Key.Single || other.Scope == v.Scope) {
			other.Reset()
		}
	}
	l.Records.Restored(back, version)
	l.Pages.Forget(v.Scope)
}
