package view

import (
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/records"
	"github.com/edgehub-io/edgehub/cache/versions"
)

// Seek returns the newest copies of an object that a user may read, in any representation;
// all have the same version. Otherwise its error is ErrDenied, ErrDoubtful, ErrNeverRead or,
// only if that is proven, NotFound. See package records for the rules.
func (s *Views) Seek(q *query.Query) ([]Copy, error) {
	of, name := q.UserResource(), q.Member()
	copies := s.Copies(of, name)
	k := s.Records.Known(of, q.Namespace, name)
	switch {
	case k.Refused:
		return nil, ErrDenied
	case k.Closed:
		return nil, ErrDoubtful
	}
	absent, wasAbsent := s.absentAt(q)
	live := slices.DeleteFunc(slices.Clone(copies.All), func(c Copy) bool {
		return wasAbsent != "" && versions.Compare(c.proven, wasAbsent) <= 0 || c.isGone(&k)
	})
	if len(live) == 0 {
		return nil, s.missing(q, &copies, &k, absent)
	}
	sure := k.Doubt == "" || k.Proven != "" && versions.Compare(k.Proven, k.Doubt) >= 0
	for i := range live {
		sure = sure || versions.Compare(live[i].proven, k.Doubt) > 0
	}
	if !sure {
		return nil, ErrDoubtful
	}
	seen := versions.Higher(copies.newest, k.Damaged)
	if !slices.ContainsFunc(live, func(c Copy) bool { return versions.Compare(c.proven, seen) >= 0 }) {
		return nil, ErrDoubtful // the user may have seen a newer one
	}
	version := newestOf(live)
	return slices.DeleteFunc(live, func(c Copy) bool { return c.Entry.Version != version }), nil
}

// missing returns why there is no copy. It is NotFound if the proof is as new as everything
// that was seen of the object.
func (s *Views) missing(q *query.Query, c *Copies, k *records.Known, absent string) error {
	floor, had := versions.Higher(versions.Higher(c.hidden, k.Floor), versions.Higher(k.Seen, k.Proven)), k.Had || len(c.All) > 0
	if k.Gone != "" && had {
		absent = versions.Higher(absent, k.Gone)
	}
	switch {
	case absent != "" && versions.Compare(absent, floor) >= 0:
		return apierrors.NewNotFound(q.Resource.GroupResource(), q.Name)
	case had:
		return ErrDoubtful
	}
	return ErrNeverRead
}

// ErrDoubtful is returned for an object that may have been deleted.
var ErrDoubtful = errors.New("this may have been deleted since it was read through this hub; it is read again when the cloud can be reached")

// ErrNeverRead is returned for an object of which nothing is known. That does not mean that
// it does not exist.
var ErrNeverRead = errors.New("this was never read through this hub")

// ErrDenied is returned to a user that has lost access.
var ErrDenied = errors.New("the apiserver refused this when it was last asked")
