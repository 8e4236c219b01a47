package relist

import (
	"net/http"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/view"
)

// Commit makes a list, the answer to a query, the state of its view. template is a request
// whose sender may read the view.
func (l *Lister) Commit(q *query.Query, template *http.Request, st *view.Stage, version string) {
	v := st.View
	if !st.Consistent {
		l.Views.Outdo(q, v)
	}
	verdict := st.Commit(version)
	l.Views.Ended(st)
	if verdict == view.Taken {
		l.Views.EndedCopies(st, version)
	}
	switch verdict {
	case view.Restored:
		l.restored(v, version)
		l.Refresh(v, template)
	case view.Outdated:
		if !st.Consistent {
			l.Verify(v, template)
		}
	case view.Taken:
		if v.Behind() { // an apiserver that is behind another answered, from its memory
			l.Refresh(v, template)
		}
	}
	if !l.Views.EnforceLimit(v) {
		l.Log.Warn("not kept: it takes more than --cache-max-bytes alone", "view", v.String(), "max", l.Max)
	}
}

// restored is called when a view turned out to be newer than the apiservers.
// Versions may name other objects from now on, so everything goes that is compared
// by them: views of the same resource, and what was read one by one from the same store.
func (l *Lister) restored(v *view.View, version string) {
	l.Log.Warn("apiserver's versions have gone back: its store was restored from a backup; the cache follows", "view", v.String(), "version", version)
	back := v.Key.UserResource()
	for _, other := range l.Views.All() {
		if other.Key.UserResource().RestoredWith(back) && (other.Key.Single || other.Scope == v.Scope) {
			other.StartOver()
		}
	}
	l.Records.Restored(back, version)
	l.Pages.Forget(v.Scope)
}
