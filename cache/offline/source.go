package offline

import (
	"slices"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/negotiation"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// offer is an entry of an Accept header, and the representations in which cached
// objects can be for it to be served: to itself first, and then those that are converted.
type offer struct {
	to   negotiation.Representation
	from []negotiation.Representation
}

// inAcceptOrder returns what an Accept header asks for, in the order in which an
// apiserver chooses from it. A whole entry comes before the next: a client that prefers
// the metadata of objects, and names plain JSON last, may not be able to read more.
func inAcceptOrder(accept string) []offer {
	var offers []offer
	for _, to := range negotiation.Acceptable(accept) {
		if to.Cacheable() {
			offers = append(offers, offer{to, convertibleTo(to)})
		}
	}
	return offers
}

// convertibleTo returns the representations from which r can be made, r itself first.
func convertibleTo(r negotiation.Representation) []negotiation.Representation {
	all := []negotiation.Representation{r}
	for _, metadata := range slices.Compact([]string{r.Metadata, ""}) {
		for _, e := range []wire.Encoding{wire.Protobuf, wire.JSON} {
			if other := (negotiation.Representation{Encoding: e, Metadata: metadata}); other != r {
				all = append(all, other)
			}
		}
	}
	return all
}

// Source is a view that can answer, if need be after a conversion.
type Source struct {
	View *view.View
	Repr negotiation.Representation // asked for
}

// converts reports whether the view's objects are not what was asked for.
func (s *Source) converts() bool { return s.View.Repr != s.Repr }

// convertible reports whether object can make what was asked for.
func (s *Source) convertible() bool {
	return !s.converts() || s.Repr.Metadata != s.View.Repr.Metadata || convert.Knows(s.ItemType())
}

// Object makes a bare object into what was asked for. bare is that of the view.
func (s *Source) Object(bare []byte) ([]byte, error) {
	from := s.View.Repr
	switch {
	case !s.converts():
		return bare, nil
	case s.Repr.Metadata != from.Metadata:
		return convert.Metadata(from.Encoding, s.Repr.Encoding, bare)
	}
	return convert.Bare(from.Encoding, s.Repr.Encoding, s.ItemType(), bare)
}

// ItemType is the type of what object returns.
func (s *Source) ItemType() wire.TypeMeta {
	if s.Repr.Metadata != s.View.Repr.Metadata {
		return convert.MetadataType
	}
	return s.View.ItemType()
}

// Meta is what the asked for list says of itself.
func (s *Source) Meta(m wire.ListMeta) wire.ListMeta {
	if s.Repr.Metadata != s.View.Repr.Metadata {
		m.TypeMeta = wire.TypeMeta{APIVersion: convert.MetadataType.APIVersion, Kind: convert.MetadataType.Kind + "List"}
		m.Sorted = false
	}
	return m
}

// Source finds a view for a list or watch. For each entry of the Accept header in turn,
// that is the view which holds just that, or else the newest from which it can be converted.
// No view will do that is older than what was seen in a form before it.
func (r *Request) Source() (*Source, error) {
	behind, seen := false, "" // seen in any form that is asked for
	for _, o := range inAcceptOrder(r.Query.Accept) {
		var best *Source
		position := ""
		for _, in := range o.from {
			s := &Source{r.Answers.Views.Find(r.Query.Key(in)), o.to}
			if s.View != nil && !s.converts() {
				seen = versions.Higher(seen, s.View.Latest())
			}
			if s.View == nil || !s.View.Usable() || !s.convertible() {
				continue
			}
			switch p := s.View.Position(); {
			case versions.Compare(p, seen) < 0:
				behind = true
			case !s.converts():
				return s, nil
			case best == nil || versions.Compare(p, position) > 0:
				best, position = s, p
			}
		}
		if best != nil {
			r.Answers.Views.MarkSeen(r.Query.Key(o.to), position)
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
	for _, v := range r.Answers.Views.Representations(r.Query) {
		switch {
		case v.Denied():
			return view.ErrDenied
		case v.Behind() && v.Position() != "":
			err = view.ErrBehind
		case !v.Usable():
		case v.Repr.Metadata != "":
			err = ErrOnlyMetadata
		default:
			err = NotAcceptable(r.Query)
		}
	}
	return err
}

// unknown says why nothing is cached of what a query asks for.
func (r *Request) unknown() error {
	if r.Answers.unkept.has(r.Query) {
		return errNotKept
	}
	return view.ErrNeverRead
}
