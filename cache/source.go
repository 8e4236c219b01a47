package cache

import (
	"slices"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// offer is an entry of an Accept header, and the representations in which cached
// objects can be for it to be served: to itself first, and then those that are converted.
type offer struct {
	to   wire.Representation
	from []wire.Representation
}

// inAcceptOrder returns what an Accept header asks for, in the order in which an
// apiserver chooses from it. A whole entry comes before the next: a client that prefers
// the metadata of objects, and names plain JSON last, may not be able to read more.
func inAcceptOrder(accept string) []offer {
	var offers []offer
	for _, to := range wire.Acceptable(accept) {
		if to.Cacheable() {
			offers = append(offers, offer{to, convertibleTo(to)})
		}
	}
	return offers
}

// convertibleTo returns the representations from which r can be made, r itself first.
func convertibleTo(r wire.Representation) []wire.Representation {
	all := []wire.Representation{r}
	for _, metadata := range slices.Compact([]string{r.Metadata, ""}) {
		for _, e := range []wire.Encoding{wire.Protobuf, wire.JSON} {
			if other := (wire.Representation{Encoding: e, Metadata: metadata}); other != r {
				all = append(all, other)
			}
		}
	}
	return all
}

// source is a view that can answer, if need be after a conversion.
type source struct {
	view *view.View
	repr wire.Representation // asked for
}

// converts reports whether the view's objects are not what was asked for.
func (s *source) converts() bool { return s.view.Repr != s.repr }

// convertible reports whether object can make what was asked for.
func (s *source) convertible() bool {
	return !s.converts() || s.repr.Metadata != s.view.Repr.Metadata || convert.Knows(s.itemType())
}

// object makes a bare object into what was asked for. bare is that of the view.
func (s *source) object(bare []byte) ([]byte, error) {
	from := s.view.Repr
	switch {
	case !s.converts():
		return bare, nil
	case s.repr.Metadata != from.Metadata:
		return convert.Metadata(from.Encoding, s.repr.Encoding, bare)
	}
	return convert.Bare(from.Encoding, s.repr.Encoding, s.itemType(), bare)
}

// itemType is the type of what object returns.
func (s *source) itemType() wire.TypeMeta {
	if s.repr.Metadata != s.view.Repr.Metadata {
		return convert.MetadataType
	}
	return s.view.ItemType()
}

// meta is what the asked for list says of itself.
func (s *source) meta(m wire.ListMeta) wire.ListMeta {
	if s.repr.Metadata != s.view.Repr.Metadata {
		m.TypeMeta = wire.TypeMeta{APIVersion: convert.MetadataType.APIVersion, Kind: convert.MetadataType.Kind + "List"}
		m.Sorted = false
	}
	return m
}

// source finds a view for a list or watch. For each entry of the Accept header in turn,
// that is the view which holds just that, or else the newest from which it can be converted.
// No view will do that is older than what was seen in a form before it.
func (r *Request) source() (*source, error) {
	behind, seen := false, "" // seen in any form that is asked for
	for _, o := range inAcceptOrder(r.query.Accept) {
		var best *source
		position := ""
		for _, in := range o.from {
			s := &source{r.answers.views.Find(r.query.Key(in)), o.to}
			if s.view != nil && !s.converts() {
				seen = versions.Higher(seen, s.view.Latest())
			}
			if s.view == nil || !s.view.Usable() || !s.convertible() {
				continue
			}
			switch p := s.view.Position(); {
			case versions.Compare(p, seen) < 0:
				behind = true
			case !s.converts():
				return s, nil
			case best == nil || versions.Compare(p, position) > 0:
				best, position = s, p
			}
		}
		if best != nil {
			return best, nil
		}
	}
	if behind {
		return nil, view.ErrBehind
	}
	return nil, r.unanswerable()
}

// unanswerable says why none of the views of a list or watch can answer.
func (r *Request) unanswerable() error {
	err := r.unknown()
	for _, v := range r.answers.views.Forms(r.query) {
		switch {
		case v.Denied():
			return view.ErrDenied
		case v.Behind() && v.Position() != "":
			err = view.ErrBehind
		case !v.Usable():
		case v.Repr.Metadata != "":
			err = errOnlyMetadata
		default:
			err = notAcceptable(r.query)
		}
	}
	return err
}

// unknown says why nothing is cached of what a query asks for.
func (r *Request) unknown() error {
	if r.answers.unkept.has(r.query) {
		return errNotKept
	}
	return view.ErrNeverRead
}
