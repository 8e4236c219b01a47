package offline

import (
	"net/http"
	"strings"

	"github.com/edgehub-io/edgehub/cache/derived"
	"github.com/edgehub-io/edgehub/cache/negotiation"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// Current answers a GET or LIST that accepts any state while the cloud is there, from a view that a
// watch keeps current: just as an apiserver would. Otherwise it returns nil. See view.Views.Current.
func (r *Request) Current() *http.Response {
	a, to := r.Answers, negotiation.Preferred(r.Query.Accept)
	// While something of an outage is shown over objects of the resource, what the cloud has is read there.
	if !to.Cacheable() || to.Encoding == wire.JSON && isPretty(r.HTTP) || a.Derived.HasReports(r.Query.Resource) ||
		derived.IsSlices(r.Info.APIGroup, r.Info.APIVersion, r.Info.Resource) {
		return nil
	}
	var res *http.Response
	var err error
	if r.Query.Verb == "get" {
		c, ok := a.Views.Current(r.Query, to)
		if !ok {
			return nil
		}
		res, err = r.object(&c, to)
	} else {
		snap := a.Views.CurrentList(r.Query, to)
		if snap == nil {
			return nil
		}
		src := &Source{View: a.Views.Find(r.Query.Key(to)), Repr: to}
		src.View.Touch(a.Now())
		res, err = r.list(src, snap)
	}
	if err != nil || res.StatusCode != http.StatusOK {
		return nil
	}
	return res
}

// isPretty reports whether an apiserver may indent JSON for a request: it asks for that, or comes from
// a person's program.
func isPretty(r *http.Request) bool {
	for _, program := range []string{"curl", "Wget", "Mozilla/5.0"} {
		if strings.HasPrefix(r.UserAgent(), program) {
			return true
		}
	}
	return r.URL.Query().Has("pretty") || strings.Contains(r.Header.Get("Accept"), "pretty")
}
