package cache

import (
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/records"
	"github.com/edgehub-io/edgehub/cache/versions"
)

// seek returns the newest copies of an object that a user may read, in any representation;
// they are of one version. Otherwise it says why there is none: NotFound only if that is
// proven. See records for the rules.
func (s *views) seek(q *query.Query) ([]heldCopy, error) {
	of, name := q.UserResource(), q.Member()
	copies := s.copies(of, name)
	k := s.records.Known(of, q.Namespace, name)
	switch {
	case k.Refused:
		return nil, errDenied
	case k.Closed:
		return nil, errDoubtful
	}
	absent := s.absentAt(q)
	live := slices.DeleteFunc(slices.Clone(copies.all), func(c heldCopy) bool {
		return absent != "" && versions.Compare(c.proven, absent) <= 0 || c.isGone(&k)
	})
	if len(live) == 0 {
		return nil, s.missing(q, &copies, &k, absent)
	}
	sure := k.Doubt == "" || k.Proven != "" && versions.Compare(k.Proven, k.Doubt) >= 0
	for i := range live {
		sure = sure || versions.Compare(live[i].proven, k.Doubt) > 0
	}
	if !sure {
		return nil, errDoubtful
	}
	seen := versions.Higher(copies.newest, k.Damaged)
	if !slices.ContainsFunc(live, func(c heldCopy) bool { return versions.Compare(c.proven, seen) >= 0 }) {
		return nil, errDoubtful // the user may have seen a newer one
	}
	version := newestOf(live)
	return slices.DeleteFunc(live, func(c heldCopy) bool { return c.entry.version != version }), nil
}

// missing says why there is no copy: because there is no such object, if what says so is not
// older than anything that was seen.
func (s *views) missing(q *query.Query, c *copies, k *records.Known, absent string) error {
	floor, had := versions.Higher(versions.Higher(c.hidden, k.Floor), versions.Higher(k.Seen, k.Proven)), k.Had || len(c.all) > 0
	if k.Gone != "" && had {
		absent = versions.Higher(absent, k.Gone)
	}
	switch {
	case absent != "" && versions.Compare(absent, floor) >= 0:
		return apierrors.NewNotFound(q.Resource.GroupResource(), q.Name)
	case had:
		return errDoubtful
	}
	return errNeverRead
}

// errDoubtful is why there is no answer to a GET of what may have been deleted.
var errDoubtful = errors.New("this may have been deleted since it was read through this hub; it is read again when the cloud can be reached")

// errNeverRead is why there is no answer. What is known of an object is either
// what an apiserver said, or nothing: never that it is not there.
var errNeverRead = errors.New("this was never read through this hub")

// errDenied is why there is no answer to a user who had lost access.
var errDenied = errors.New("the apiserver refused this when it was last asked")
