package cache

import (
	"slices"

	"github.com/edgehub-io/edgehub/cache/convert"
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
	view *view
	repr wire.Representation // asked for
}

// converts reports whether the view's objects are not what was asked for.
func (s *source) converts() bool { return s.view.repr != s.repr }

// convertible reports whether object can make what was asked for.
func (s *source) convertible() bool {
	return !s.converts() || s.repr.Metadata != s.view.repr.Metadata || convert.Knows(s.itemType())
}

// object makes a bare object into what was asked for. bare is that of the view.
func (s *source) object(bare []byte) ([]byte, error) {
	from := s.view.repr
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
	if s.repr.Metadata != s.view.repr.Metadata {
		return convert.MetadataType
	}
	return s.view.itemType()
}

// meta is what the asked for list says of itself.
func (s *source) meta(m wire.ListMeta) wire.ListMeta {
	if s.repr.Metadata != s.view.repr.Metadata {
		m.TypeMeta = wire.TypeMeta{APIVersion: convert.MetadataType.APIVersion, Kind: convert.MetadataType.Kind + "List"}
		m.Sorted = false
	}
	return m
}

// source finds a view for a list or watch. For each entry of the Accept header in turn,
// that is the view which holds just that, or else the newest from which it can be converted.
// No view will do that is older than what was seen in a form before it.
func (x *exchange) source() (*source, error) {
	behind, seen := false, "" // seen in any form that is asked for
	for _, o := range inAcceptOrder(x.query.accept) {
		var best *source
		position := ""
		for _, in := range o.from {
			s := &source{x.cache.views.find(x.query.key(in)), o.to}
			if s.view != nil && !s.converts() {
				seen = higher(seen, s.view.latest())
			}
			if s.view == nil || !s.view.usable() || !s.convertible() {
				continue
			}
			switch p := s.view.position(); {
			case compare(p, seen) < 0:
				behind = true
			case !s.converts():
				return s, nil
			case best == nil || compare(p, position) > 0:
				best, position = s, p
			}
		}
		if best != nil {
			x.cache.views.gave(x.query.key(o.to), position)
			return best, nil
		}
	}
	if behind {
		return nil, errBehind
	}
	return nil, x.unanswerable()
}

// gave notes that a client who asked for a view was given that state of another one, converted:
// an older state of the view itself is no answer any more. It may just be on its way, or be
// refused for now.
func (s *views) gave(key viewKey, version string) {
	v := s.acquire(key)
	defer v.release()
	v.sawState(version)
}

// unanswerable says why none of the views of a list or watch can answer.
func (x *exchange) unanswerable() error {
	err := x.unknown()
	for _, v := range x.forms() {
		switch {
		case v.denied():
			return errDenied
		case v.behind() && v.position() != "":
			err = errBehind
		case !v.usable():
		case v.repr.Metadata != "":
			err = errOnlyMetadata
		default:
			err = notAcceptable(x.query)
		}
	}
	return err
}

// unknown says why nothing is cached of what a query asks for.
func (x *exchange) unknown() error {
	if x.cache.unkept.has(x.query) {
		return errNotKept
	}
	return errNeverRead
}
