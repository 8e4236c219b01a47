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
	// MaxCount and MaxBytes bound the answers of all users together: 1,000 and 16 MiB
	// by default. kubectl reads some 100 answers, of 3 MiB, of a cluster with 30 groups
	// and versions; with aggregated discovery, two. Package quota determines who loses first.
	MaxCount int
	MaxBytes int64
	Logger   *slog.Logger // logs damage; by default nothing is logged
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
	table *table.Table
	opts  Options

	mu      sync.Mutex
	entries map[string]*entry // by key in the table
}

// Open returns the answers in a table.
func Open(t table.Store, o Options) (*Cache, error) {
	o.MaxCount = cmp.Or(o.MaxCount, 1000)
	o.MaxBytes = cmp.Or(o.MaxBytes, 16<<20)
	b, err := table.Open(t, tableName, o.Logger)
	if err != nil {
		return nil, fmt.Errorf("open the kept answers: %w", err)
	}
	c := &Cache{table: b, opts: o, entries: make(map[string]*entry)}
	err = b.Load(func(key string, value []byte) error {
		r, err := parse(value)
		if err == nil {
			c.entries[key] = r.entry(len(value))
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open the kept answers: %w", err)
	}
	for key := range c.entries { // early builds had no maxVariants
		c.trimLocked(key[:len(key)/2])
	}
	b.Delete(c.evictLocked()...)
	return c, nil
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
			c.keepLocked(path, key, newRecord(user, header, body))
		}
	case http.StatusNotModified:
		c.confirmLocked(user, path, key, currentTag(r, header))
	case http.StatusForbidden:
		c.deleteLocked(c.variantsLocked(path))
	}
}

// keepLocked stores an answer, unless the same one is stored.
func (c *Cache) keepLocked(path, key string, r record) {
	now := time.Now()
	value, err := r.bytes(now)
	if err != nil {
		return // a clock beyond the year 9999
	}
	next := r.entry(len(value))
	next.read, next.written = now, now
	if old := c.entries[key]; old != nil && old.sum == next.sum && old.head == next.head && now.Sub(old.written) < writeEvery {
		if _, stored := c.table.Get(key); stored { // the cache's file may have been replaced
			old.read = now
			return
		}
	}
	c.entries[key] = next
	c.table.Put(key, value)
	c.trimLocked(path)
	c.table.Delete(c.evictLocked()...)
}

// confirmLocked records that an ETag is the current one.
func (c *Cache) confirmLocked(user, path, key, tag string) {
	if tag == "" {
		return
	}
	var r record
	if e := c.entries[key]; e != nil {
		if e.current(tag) && time.Since(e.written) < writeEvery {
			e.read = time.Now()
			return
		}
		r, _ = c.readLocked(key)
	}
	r.User, r.Confirmed = user, tag
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
	if status, header, body, ok = c.answerLocked(key, tags); ok {
		return status, header, body, true
	}
	variants := c.variantsLocked(path)
	for _, mediaType := range types {
		for _, key := range variants {
			if c.entries[key].mediaType != mediaType {
				continue
			}
			if status, header, body, ok = c.answerLocked(key, tags); ok {
				return status, header, body, true
			}
		}
	}
	return 0, nil, nil, false
}

func (c *Cache) answerLocked(key, tags string) (status int, header http.Header, body []byte, ok bool) {
	e := c.entries[key]
	if e == nil {
		return 0, nil, nil, false
	}
	if tag := e.match(tags); tag != "" {
		return http.StatusNotModified, e.notModified(tag), nil, true
	}
	if e.ContentType == "" {
		return 0, nil, nil, false // only an ETag is known
	}
	r, ok := c.readLocked(key)
	if !ok {
		return 0, nil, nil, false
	}
	return http.StatusOK, r.header(), r.body, true
}

// readLocked reads an answer from the table.
func (c *Cache) readLocked(key string) (record, bool) {
	value, ok := c.table.Get(key)
	if !ok {
		return record{}, false
	}
	r, err := parse(value)
	return r, err == nil
}

// variantsLocked returns the keys of all answers to one user for one path and query, the most
// recently read first.
func (c *Cache) variantsLocked(path string) (keys []string) {
	for key := range c.entries {
		if strings.HasPrefix(key, path) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b string) int { return c.entries[b].read.Compare(c.entries[a].read) })
	return keys
}

// trimLocked deletes variants beyond maxVariants.
func (c *Cache) trimLocked(path string) {
	if variants := c.variantsLocked(path); len(variants) > maxVariants {
		c.deleteLocked(variants[maxVariants:])
	}
}

func (c *Cache) deleteLocked(keys []string) {
	for _, key := range keys {
		delete(c.entries, key)
	}
	c.table.Delete(keys...)
}

// evictLocked removes answers beyond the bounds from memory, and returns their keys.
func (c *Cache) evictLocked() (keys []string) {
	items := make([]quota.Item[string], 0, len(c.entries))
	for key, e := range c.entries {
		items = append(items, quota.Item[string]{Key: key, User: e.user, Bytes: e.size, Last: e.read.UnixNano()})
	}
	for _, item := range quota.Excess(quota.Bounds{Count: c.opts.MaxCount, Bytes: c.opts.MaxBytes}, items) {
		delete(c.entries, item.Key)
		keys = append(keys, item.Key)
	}
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
	path = c.table.Key(user, name, hash)
	return path, path + c.table.Key(strings.Join(r.Header.Values("Accept"), ","))
}
