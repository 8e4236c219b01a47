package discovery

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/edgehub-io/edgehub/cache/quota"
	"github.com/edgehub-io/edgehub/cache/table"
)

// Options of a Cache. The zero value is usable.
type Options struct {
	// Bounds are those of the answers of all users together: 1,000 and 16 MiB by default.
	// kubectl reads some 100 answers, of 3 MiB, of a cluster with 30 groups and versions; with
	// aggregated discovery, two. Package quota determines who loses first.
	Bounds quota.Bounds
	Logger *slog.Logger // logs damage; by default nothing is logged
}

const (
	// maxVariants is the number of answers to one user for one path and query, by Accept
	// header. Beyond it, the least recently read ones are dropped. Clients of one user have
	// two or three, and another one gets the best match.
	maxVariants = 8

	// MaxBody is the size, in bytes, of the largest body that is stored. Aggregated discovery
	// has some 200 KB; the schemas of a group and version up to 1 MiB.
	MaxBody = 1 << 20

	// tableName is the name of the store's table.
	tableName = "paths"

	// writeEvery is the precision of the stored time of the last read.
	writeEvery = 24 * time.Hour
)

// Cache stores answers.
type Cache struct {
	mu      sync.Mutex
	answers *table.Answers[head] // Used is when an apiserver last gave or confirmed the answer
}

// Open returns the answers in a table.
func Open(t table.Store, o Options) (*Cache, error) {
	answers, err := table.OpenAnswers[head](t, table.AnswersOptions{
		Name: tableName, Bounds: cmp.Or(o.Bounds, quota.Bounds{Count: 1000, Bytes: 16 << 20}), WriteEvery: writeEvery, Logger: o.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("open the kept answers: %w", err)
	}
	answers.Evict()
	return &Cache{answers: answers}, nil
}

// Wanted reports whether answers to a request are stored: GETs of /version, discovery, and
// /openapi/v3.
func Wanted(r *http.Request) bool {
	if r.Method != http.MethodGet {
		return false
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
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

// Keep stores an answer of an apiserver to one of its users. Of a 200 it needs the whole body, not
// compressed; a 304 has none; a 403 revokes what the user has read; other answers change
// nothing. It keeps no reference to its arguments.
func (c *Cache) Keep(user string, r *http.Request, status int, header http.Header, body []byte) {
	if !Wanted(r) {
		return
	}
	path, key := c.keys(user, r)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch status {
	case http.StatusOK:
		if encoding := header.Get("Content-Encoding"); len(body) <= MaxBody && (encoding == "" || encoding == "identity") {
			c.keepLocked(path, key, table.Answer[head]{User: user, About: newHead(header), Body: body})
		}
	case http.StatusNotModified:
		c.confirmLocked(user, path, key, currentTag(r, header))
	case http.StatusForbidden:
		c.answers.Delete(c.variantsLocked(path)...)
	}
}

// keepLocked stores an answer.
func (c *Cache) keepLocked(path, key string, r table.Answer[head]) {
	r.Used = time.Now()
	c.answers.Put(key, r)
	if variants := c.variantsLocked(path); len(variants) > maxVariants {
		c.answers.Delete(variants[maxVariants:]...)
	}
}

// confirmLocked records that an ETag is the current one.
func (c *Cache) confirmLocked(user, path, key, tag string) {
	if tag == "" {
		return
	}
	r, _ := c.answers.Get(key)
	r.User = user
	if !r.About.current(tag) {
		r.About.Confirmed = tag
	}
	c.keepLocked(path, key, r)
}

// Answer returns an answer that is stored for this user: 200, or 304 for a client that has the
// current one. ok is false if there is none. header and body are the caller's; header has no
// Content-Length.
func (c *Cache) Answer(user string, r *http.Request) (status int, header http.Header, body []byte, ok bool) {
	if !Wanted(r) {
		return 0, nil, nil, false
	}
	path, key := c.keys(user, r)
	tags, types := r.Header.Get("If-None-Match"), accepted(r.Header.Values("Accept"))
	c.mu.Lock()
	defer c.mu.Unlock()
	variants := make(map[string][]string)
	for _, key := range c.variantsLocked(path) {
		contentType := mediaType(c.answers.Entries[key].About.ContentType)
		variants[contentType] = append(variants[contentType], key)
	}
	candidates := []string{key}
	for _, accepted := range types {
		candidates = append(candidates, variants[accepted]...)
	}
	for _, key := range candidates {
		if status, header, body, ok = c.answerLocked(key, tags); ok {
			return status, header, body, true
		}
	}
	return 0, nil, nil, false
}

func (c *Cache) answerLocked(key, tags string) (status int, header http.Header, body []byte, ok bool) {
	e := c.answers.Entries[key]
	if e == nil {
		return 0, nil, nil, false
	}
	if tag := e.About.match(tags); tag != "" {
		return http.StatusNotModified, e.About.notModified(tag), nil, true
	}
	if e.About.ContentType == "" {
		return 0, nil, nil, false // only an ETag is known
	}
	r, ok := c.answers.Get(key)
	if !ok {
		return 0, nil, nil, false
	}
	return http.StatusOK, r.About.header(), r.Body, true
}

// variantsLocked returns the keys of all answers to one user for one path and query, the most
// recently read first.
func (c *Cache) variantsLocked(path string) (keys []string) {
	for key := range c.answers.Entries {
		if strings.HasPrefix(key, path) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b string) int { return c.answers.Entries[b].Used.Compare(c.answers.Entries[a].Used) })
	return keys
}

// keys returns the key of the answer to a request, and its first half, which stands for the user,
// path and query. Keys consist of what apiservers use, so that queries that differ in nothing do
// not fill the cache: of the query, only the hash of a schema. Apiservers ignore a slash at the
// end of a path.
func (c *Cache) keys(user string, r *http.Request) (path, key string) {
	name, hash := strings.TrimRight(r.URL.Path, "/"), ""
	if strings.HasPrefix(name, "/openapi/v3/") {
		hash = r.URL.Query().Get("hash")
	}
	path = c.answers.Table.Key(user, name, hash)
	return path, path + c.answers.Table.Key(strings.Join(r.Header.Values("Accept"), ","))
}
