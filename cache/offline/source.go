package offline

import (
	"slices"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/negotiation"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// offer is an entry of an Accept header, and the representations of cached objects that can
// serve it: itself first, and then those that are converted.
type offer struct {
	to   negotiation.Representation
	from []negotiation.Representation
}

// inAcceptOrder returns the entries of an Accept header, in the order in which an apiserver
// chooses from them. All conversions to one entry come before the next entry: a client that
// prefers the metadata of objects, and names plain JSON last, may be unable to read more.
func inAcceptOrder(accept string) []offer {
	var offers []offer
	for _, to := range negotiation.Acceptable(accept) {
		if to.Cacheable() {
			offers = append(offers, offer{to, convertibleTo(to)})
		}
	}
	return offers
}

// convertibleTo returns the representations that can be converted to r, r itself first.
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

// convertBare converts a bare object of type t between representations.
func convertBare(bare []byte, t wire.TypeMeta, from, to negotiation.Representation) ([]byte, error) {
	switch {
	case from == to:
		return bare, nil
	case from.Metadata != to.Metadata:
		return convert.Metadata(from.Encoding, to.Encoding, bare)
	}
	return convert.Bare(from.Encoding, to.Encoding, t, bare)
}

// Source is a view that can answer, with a conversion if necessary.
type Source struct {
	View *view.View
	Repr negotiation.Representation // of the answer
}

// converts reports whether the view has another representation than the answer.
func (s *Source) converts() bool { return s.View.Repr != s.Repr }

// convertible reports whether Object can convert the view's objects.
func (s *Source) convertible() bool {
	return !s.converts() || s.Repr.Metadata != s.View.Repr.Metadata || convert.Knows(s.ItemType())
}

// Object converts a bare object of the view.
func (s *Source) Object(bare []byte) ([]byte, error) {
	if !s.converts() { // without the lock of ItemType
		return bare, nil
	}
	return convertBare(bare, s.View.ItemType(), s.View.Repr, s.Repr)
}

// ItemType returns the type of the objects that Object returns.
func (s *Source) ItemType() wire.TypeMeta {
	if s.Repr.Metadata != s.View.Repr.Metadata {
		return convert.MetadataType
	}
	return s.View.ItemType()
}

// Meta converts the metadata of the view's list.
func (s *Source) Meta(m wire.ListMeta) wire.ListMeta {
	if s.Repr.Metadata != s.View.Repr.Metadata {
		m.TypeMeta = wire.TypeMeta{APIVersion: convert.MetadataType.APIVersion, Kind: convert.MetadataType.Kind + "List"}
		m.Sorted = false
	}
	return m
}

// Source finds a view for a list or watch. For each entry of the Accept header in turn, that is
// the view in this representation, or else the newest that can be converted to it. A view is not
// used if it is older than what the client has seen in this, or an earlier, entry.
func (r *Request) Source() (*Source, error) {
	behind, seen := false, ""
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
			// From now on the view in this representation must not serve an older state: its list
			// may still be running, or be denied for now.
			v := r.Answers.Views.Acquire(r.Query.Key(o.to))
			v.MarkSeen(position)
			v.Release()
			return best, nil
		}
	}
	if behind {
		return nil, view.ErrBehind
	}
	return nil, r.unanswerable()
}

// unanswerable returns why no view can answer a list or watch.
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

// unknown returns why nothing is cached of a query.
func (r *Request) unknown() error {
	if r.Answers.unkept.has(r.Query) {
		return errNotKept
	}
	return view.ErrNeverRead
}
