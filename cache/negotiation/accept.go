package negotiation

import (
	"sort"
	"strconv"
	"strings"

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
	for _, c := range parseAccept(accept) {
		if c.mainType+"/"+c.subType == runtime.ContentTypeYAML {
			out = append(out, Representation{})
		}
		for _, e := range []wire.Encoding{wire.JSON, wire.Protobuf} {
			if !c.matches(e) {
				continue
			}
			if r, ok := transformed(e, c.params); ok {
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
	for _, c := range parseAccept(accept) {
		if !c.matches(got.Encoding) {
			continue
		}
		if r, ok := transformed(got.Encoding, c.params); ok {
			return r
		}
	}
	return got
}

// clause is one media range of an Accept header.
type clause struct {
	mainType, subType string
	q                 float64
	params            map[string]string
}

func (c *clause) matches(e wire.Encoding) bool {
	mainType, subType, _ := strings.Cut(e.MediaType(), "/")
	if c.mainType == "*" {
		return c.subType == "*"
	}
	return c.mainType == mainType && (c.subType == subType || c.subType == "*")
}

// parseAccept reads a header as goautoneg does, which apiservers use: media types are
// compared as they are written, q=0 is not a refusal, and what has no "/" is skipped.
func parseAccept(header string) []clause {
	var out []clause
	for part := range strings.SplitSeq(header, ",") {
		mediaRange, params, hasParams := strings.Cut(part, ";")
		mainType, subType, _ := strings.Cut(mediaRange, "/")
		c := clause{mainType: trim(mainType), subType: trim(subType), q: 1}
		switch {
		case subType == "" && c.mainType == "*":
			c.subType = "*"
		case subType == "" || strings.Contains(subType, "/"):
			continue
		}
		if hasParams {
			c.readParams(params)
		}
		out = append(out, c)
	}
	sort.Sort(byPreference(out))
	return out
}

func (c *clause) readParams(params string) {
	c.params = make(map[string]string)
	for param := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(param, "=")
		switch name = trim(name); {
		case value == "" || strings.Contains(value, "="):
		case name == "q":
			c.q, _ = strconv.ParseFloat(value, 32) // what is no number is 0
		default:
			c.params[name] = trim(value)
		}
	}
}

func trim(s string) string { return strings.Trim(s, " ") }

// byPreference orders clauses as goautoneg does. The order is not transitive, so that
// the outcome depends on the algorithm: it has to be the one of package sort, too.
type byPreference []clause

func (s byPreference) Len() int      { return len(s) }
func (s byPreference) Swap(i, j int) { s[i], s[j] = s[j], s[i] }
func (s byPreference) Less(i, j int) bool {
	a, b := &s[i], &s[j]
	return a.q > b.q ||
		a.mainType != "*" && b.mainType == "*" ||
		a.subType != "*" && b.subType == "*"
}
