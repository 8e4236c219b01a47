package wire

import (
	"strings"

	"github.com/munnerz/goautoneg"
	"k8s.io/apimachinery/pkg/runtime"
)

// Acceptable returns the representations that an Accept header allows, in the order of an
// apiserver's preference. Those that are never cached, for example a Table, are the zero
// Representation: a caller without an answer for it goes on to the next.
func Acceptable(accept string) []Representation {
	if accept == "" {
		return []Representation{{Encoding: JSON}}
	}
	var out []Representation
	for _, clause := range goautoneg.ParseAccept(accept) {
		if clause.Type+"/"+clause.SubType == runtime.ContentTypeYAML {
			out = append(out, Representation{})
		}
		for _, e := range []Encoding{JSON, Protobuf} {
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

// Preferred returns the representation that a client wants most. It is the zero Representation if the
// cache does not know it, or it is never cached.
func Preferred(accept string) Representation {
	if accept == "" {
		return Representation{Encoding: JSON}
	}
	for _, clause := range goautoneg.ParseAccept(accept)[:1] {
		for _, e := range []Encoding{JSON, Protobuf} {
			if r, ok := transformed(e, clause.Params); ok && matches(clause, e) {
				return r
			}
		}
	}
	return Representation{}
}

// Negotiate returns the first representation that accept allows and that is at hand.
func Negotiate(accept string, atHand func(Representation) bool) (_ Representation, ok bool) {
	for _, r := range Acceptable(accept) {
		if r.Cacheable() && atHand(r) {
			return r, true
		}
	}
	return Representation{}, false
}

// Answered returns the representation of an answer: the first one in accept that has the answer's
// encoding. The caller must check the type of the body with [Representation.Holds], because the
// apiserver may not support that representation.
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
func matches(clause goautoneg.Accept, e Encoding) bool {
	if clause.Type == "*" {
		return clause.SubType == "*"
	}
	mainType, subType, _ := strings.Cut(e.MediaType(), "/")
	return clause.Type == mainType && (clause.SubType == subType || clause.SubType == "*")
}
