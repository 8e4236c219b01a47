package repeat

import (
	"cmp"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/edgehub-io/edgehub/cache/quota"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

const (
	// maxVariants is the number of answers to one user for one path, by Accept header. Beyond it, the
	// least recently read ones are dropped. Clients of one user have two or three, and another one gets
	// the best match.
	maxVariants = 8

	// maxPath is the size, in bytes, of the largest body that is stored. Aggregated discovery has some
	// 200 KB; the schemas of a group and version up to 1 MiB.
	maxPath = 1 << 20
)

// paths are the answers to GETs of /version, discovery and /openapi/v3.
type paths struct{ *kept }

// kubectl reads some 100 answers, of 3 MiB, of a cluster with 30 groups and versions; with aggregated
// discovery, two.
func newPaths(a *Answers) *paths {
	return &paths{&kept{
		answers: a, name: "path", entries: map[string]*entry{}, bounds: quota.Bounds{Count: 1000, Bytes: 16 << 20},
		writeEvery: 24 * time.Hour, lasts: math.MaxInt64,
	}}
}

func (*paths) wants(r *Request) bool {
	if r.HTTP.Method != http.MethodGet {
		return false
	}
	parts := strings.Split(strings.Trim(r.HTTP.URL.Path, "/"), "/")
	switch parts[0] {
	case "version":
		return len(parts) == 1
	case "api":
		return len(parts) <= 2
	case "apis":
		return len(parts) <= 3
	case "openapi":
		return len(parts) >= 2 && parts[1] == "v3"
	}
	return false
}

// keep stores a 200; a 304 confirms an ETag; a 403 revokes what the user has read. Other answers change nothing.
func (p *paths) keep(r *Request, res *Response) error {
	p.answers.mu.Lock()
	defer p.answers.mu.Unlock()
	group, key := p.keys(r)
	switch res.Code {
	case http.StatusOK:
		if len(res.Body) <= maxPath {
			p.putVariant(key, entry{record: record{User: r.User, Group: group, Header: repeated(res.Header)}}, res.Body)
		}
	case http.StatusNotModified:
		p.confirm(r, group, key, currentTag(r.HTTP.Header, res.Header))
	case http.StatusForbidden:
		p.delete(p.variants(group)...)
	}
	return nil
}

func (p *paths) putVariant(key string, e entry, body []byte) {
	e.Used = 0
	p.put(key, e, body)
	if variants := p.variants(e.Group); len(variants) > maxVariants {
		p.delete(variants[maxVariants:]...)
	}
}

// confirm records that an ETag is the current one.
func (p *paths) confirm(r *Request, group, key, tag string) {
	if tag == "" {
		return
	}
	e := entry{record: record{User: r.User, Group: group}}
	known, body, ok := p.get(key)
	if ok {
		e = *known
	}
	if !e.isCurrent(tag) {
		e.Confirmed = tag
	}
	p.putVariant(key, e, body)
}

// answer returns 200, or 304 to a client that has the current answer.
func (p *paths) answer(r *Request) (*Response, error) {
	p.answers.mu.Lock()
	defer p.answers.mu.Unlock()
	accept := strings.Join(r.HTTP.Header.Values("Accept"), ",")
	group, key := p.keys(r)
	byType := map[string][]string{}
	for _, key := range p.variants(group) {
		name := wire.MediaType(p.entries[key].Header["Content-Type"])
		byType[name] = append(byType[name], key)
	}
	candidates := []string{key}
	for _, name := range wire.MediaTypes(accept) {
		candidates = append(candidates, byType[name]...)
	}
	for _, key := range candidates {
		if res := p.repeat(key, r.HTTP.Header.Get("If-None-Match")); res != nil {
			return res, nil
		}
	}
	return nil, view.ErrNeverRead
}

// repeat returns the answer with a key to a client with ETags, or nil.
func (p *paths) repeat(key, tags string) *Response {
	e := p.entries[key]
	if e == nil {
		return nil
	}
	header := make(http.Header)
	for name, value := range e.Header {
		header.Set(name, value)
	}
	if tag := e.match(tags); tag != "" {
		header.Del("Content-Type")
		header.Set("Etag", tag)
		return &Response{Code: http.StatusNotModified, Header: header}
	}
	if len(e.Header) == 0 {
		return nil // only an ETag is known
	}
	_, body, ok := p.get(key)
	if !ok {
		return nil
	}
	return &Response{Code: http.StatusOK, Header: header, Body: body}
}

// variants returns the keys of a group's answers, the most recently read first.
func (p *paths) variants(group string) (keys []string) {
	for key, e := range p.entries {
		if e.Group == group {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b string) int { return cmp.Compare(p.entries[b].Used, p.entries[a].Used) })
	return keys
}

// keys returns the key of the answer to a request, and the group of its variants, which are those of the
// user and path. They consist of what apiservers use, so that queries that differ in nothing do not fill
// the table: of the query, only the hash of a schema. Apiservers ignore a slash at the end of a path.
func (p *paths) keys(r *Request) (group, key string) {
	name, hash := strings.TrimRight(r.HTTP.URL.Path, "/"), ""
	if strings.HasPrefix(name, "/openapi/v3/") {
		hash = r.HTTP.URL.Query().Get("hash")
	}
	group = p.answers.table.Key(p.name, r.User, name, hash)
	return group, p.answers.table.Key(group, strings.Join(r.HTTP.Header.Values("Accept"), ","))
}

// repeated returns what is stored of a response's header.
func repeated(h http.Header) map[string]string {
	stored := map[string]string{"Content-Type": "application/octet-stream"}
	for _, name := range []string{"Content-Type", "Etag", "Vary", "Cache-Control"} {
		if value := h.Get(name); value != "" {
			stored[name] = value
		}
	}
	return stored
}

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
