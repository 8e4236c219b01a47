package discovery

import (
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// maxAccepted is how many media types of an Accept header are looked at. Clients send
// some three; an attacker sends thousands.
const maxAccepted = 64

// accepted returns the media types of an Accept header that a client likes best first.
// Parameters count: discovery is told from aggregated discovery by them.
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
			c.q, _ = strconv.ParseFloat(q, 64) // what is no number is 0
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
	slices.SortStableFunc(clauses, func(a, b clause) int {
		switch {
		case a.q > b.q:
			return -1
		case a.q < b.q:
			return 1
		}
		return 0
	})
	for _, c := range clauses {
		if c.q > 0 && c.mediaType != "" && !slices.Contains(types, c.mediaType) {
			types = append(types, c.mediaType)
		}
	}
	return types
}

// mediaType is contentType as accepted writes it.
func mediaType(contentType string) string {
	name, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return ""
	}
	delete(params, "charset")
	return mime.FormatMediaType(name, params)
}

// current reports whether tag is known to be the current one.
func (h *head) current(tag string) bool {
	if h.Confirmed != "" {
		return strong(tag) == strong(h.Confirmed)
	}
	return h.ETag != "" && strong(tag) == strong(h.ETag)
}

// match returns the ETag for which a client with these tags, of If-None-Match, has the
// answer; or "".
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

// currentTag is the ETag that a 304 has confirmed.
func currentTag(r *http.Request, h http.Header) string {
	if tag := h.Get("ETag"); tag != "" {
		return tag
	}
	tag := strings.TrimSpace(r.Header.Get("If-None-Match"))
	if strings.Contains(tag, ",") || tag == "*" {
		return "" // one of them, nobody knows which
	}
	return tag
}

// strong is a tag without the mark that makes it weak: for reads they are the same.
func strong(tag string) string { return strings.TrimPrefix(tag, "W/") }
