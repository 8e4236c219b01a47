package discovery

import (
	"cmp"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// maxAccepted bounds the media types of an Accept header that are used. Clients send about
// three; an attacker sends thousands.
const maxAccepted = 64

// accepted returns the media types of an Accept header, those that a client prefers first.
// Parameters are significant: they distinguish aggregated discovery.
func accepted(accept []string) (types []string) {
	type clause struct {
		mediaType string
		q         float64
	}
	var clauses []clause
	parts := strings.SplitN(strings.Join(accept, ","), ",", maxAccepted+1)
	for _, part := range parts[:min(len(parts), maxAccepted)] {
		name, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		c := clause{q: 1}
		if q, ok := params["q"]; ok {
			c.q, _ = strconv.ParseFloat(q, 64) // an invalid one counts as 0
			delete(params, "q")
		}
		if name == "*/*" || name == "application/*" {
			name = "application/json"
		}
		c.mediaType = mime.FormatMediaType(name, params)
		clauses = append(clauses, c)
	}
	if len(clauses) == 0 {
		return []string{"application/json"}
	}
	slices.SortStableFunc(clauses, func(a, b clause) int { return cmp.Compare(b.q, a.q) })
	for _, c := range clauses {
		if c.q > 0 && c.mediaType != "" && !slices.Contains(types, c.mediaType) {
			types = append(types, c.mediaType)
		}
	}
	return types
}

// mediaType returns a Content-Type in the form that accepted returns.
func mediaType(contentType string) string {
	name, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return ""
	}
	delete(params, "charset")
	return mime.FormatMediaType(name, params)
}

// current reports whether an ETag is the current one.
func (h *head) current(tag string) bool {
	current := cmp.Or(h.Confirmed, h.ETag)
	return current != "" && strong(tag) == strong(current)
}

// match returns the ETag in an If-None-Match header with which a client has the current answer,
// or "".
func (h *head) match(tags string) string {
	for tag := range strings.SplitSeq(tags, ",") {
		switch tag = strings.TrimSpace(tag); {
		case tag == "":
		case h.current(tag):
			return tag
		case tag == "*" && h.ContentType != "":
			return h.ETag
		}
	}
	return ""
}

// currentTag returns the ETag that a 304 has confirmed, or "" if it is not known which one.
func currentTag(r *http.Request, h http.Header) string {
	if tag := h.Get("ETag"); tag != "" {
		return tag
	}
	tag := strings.TrimSpace(r.Header.Get("If-None-Match"))
	if strings.Contains(tag, ",") || tag == "*" {
		return ""
	}
	return tag
}

// strong returns an ETag without the prefix of a weak one: for reads they are equal.
func strong(tag string) string { return strings.TrimPrefix(tag, "W/") }
