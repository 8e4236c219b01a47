package negotiation

import (
	"strings"

	"github.com/munnerz/goautoneg"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/edgehub-io/edgehub/cache/wire"
)

// Acceptable returns the representations that an Accept header allows, in the order in
// which an apiserver would choose from them. Among them is the zero Representation where
// something would be chosen that is never kept, a Table for instance: a caller that has
// nothing to answer with it goes on to the next.
func Acceptable(accept string) []Representation {
	if accept == "" {
		return []Representation{{Encoding: wire.JSON}}
	}
	var out []Representation
	for _, clause := range goautoneg.ParseAccept(accept) {
		if clause.Type+"/"+clause.SubType == runtime.ContentTypeYAML {
			out = append(out, Representation{})
		}
		for _, e := range []wire.Encoding{wire.JSON, wire.Protobuf} {
			if !matches(clause, e) {
				continue
			}
			if r, ok := transformed(e, clause.Params); ok {
				out = append(out, r)
			}
		}
	}
	return out
}

// Select returns the first representation that accept allows and that is at hand.
func Select(accept string, atHand func(Representation) bool) (_ Representation, ok bool) {
	for _, r := range Acceptable(accept) {
		if r.Cacheable() && atHand(r) {
			return r, true
		}
	}
	return Representation{}, false
}

// Answered returns the representation of an answer: the first that was asked for which
// has the answer's encoding. What came has still to be held against it, with
// [Representation.Holds], because an apiserver may not have been able to serve the first.
func Answered(accept, contentType string) Representation {
	got := ParseContentType(contentType)
	if got.Metadata != "" || !got.Cacheable() {
		return got
	}
	for _, clause := range goautoneg.ParseAccept(accept) {
		if !matches(clause, got.Encoding) {
			continue
		}
		if r, ok := transformed(got.Encoding, clause.Params); ok {
			return r
		}
	}
	return got
}

// matches reports whether a media range of an Accept header allows e.
func matches(clause goautoneg.Accept, e wire.Encoding) bool {
	if clause.Type == "*" {
		return clause.SubType == "*"
	}
	mainType, subType, _ := strings.Cut(e.MediaType(), "/")
	return clause.Type == mainType && (clause.SubType == subType || clause.SubType == "*")
}
