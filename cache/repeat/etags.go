package repeat

import (
	"cmp"
	"net/http"
	"strings"
)

// isCurrent reports whether an ETag is the current one.
func (r *record) isCurrent(tag string) bool {
	current := cmp.Or(r.Confirmed, r.Header["Etag"])
	return current != "" && strong(tag) == strong(current)
}

// match returns the ETag in an If-None-Match header with which a client has the current answer, or "".
func (r *record) match(tags string) string {
	for tag := range strings.SplitSeq(tags, ",") {
		switch tag = strings.TrimSpace(tag); {
		case tag == "":
		case r.isCurrent(tag):
			return tag
		case tag == "*" && len(r.Header) > 0:
			return r.Header["Etag"]
		}
	}
	return ""
}

// currentTag returns the ETag that a 304 has confirmed, or "" if it is not known which one.
func currentTag(asked, answered http.Header) string {
	if tag := answered.Get("ETag"); tag != "" {
		return tag
	}
	tag := strings.TrimSpace(asked.Get("If-None-Match"))
	if strings.Contains(tag, ",") || tag == "*" {
		return ""
	}
	return tag
}

// strong returns an ETag without the prefix of a weak one: for reads they are equal.
func strong(tag string) string { return strings.TrimPrefix(tag, "W/") }
