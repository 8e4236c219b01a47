package discovery

import (
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
	// and versions; with aggregated discovery, two. Who loses first says package quota.
	MaxCount int
	MaxBytes int64
	Logger   *slog.Logger // of damage; by default nothing is logged
}

// maxVariants is how many answers are kept to one user for one path and query, by Accept
// header: of more, those that were read longest ago go. Clients of one user differ in
// two or three, and another one gets what matches best.
const maxVariants = 8

// MaxBody is the size, in bytes, of the largest body that is kept. All of aggregated
// discovery has some 200 KB; the schemas of a group and version up to 1 MiB.
const MaxBody = 1 << 20

// Cache is the answers that are kept.
type Cache struct {
	table *table.Table
	opts  Options

	mu      sync.Mutex
	entries map[string]*entry // by key in the table
	bytes   int64
}

// entry is what is known of an answer without reading its body.
type entry struct {
	group string // of the answers to one user for one path and query
	user  string
	head
	size    int64
	sum     [32]byte  // of the body
	read    time.Time // when it was read from an apiserver last
	written time.Time // to disk
}

// tableName is the one of the store's table.
const tableName = "paths"

// writeEvery is how exactly it is known after a restart when an answer was last read.
const writeEvery = 24 * time.Hour

// Open returns the answers that t holds.
func Open(t table.Store, o Options) (*Cache, error) {
	if o.MaxCount <= 0 {
		o.MaxCount = 1000
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = 16 << 20
	}
	b, err := table.Open(t, tableName, o.Logger)
	if err != nil {
		return nil, fmt.Errorf("open the kept answers: %w", err)
	}
	p := &Cache{table: b, opts: o, entries: make(map[string]*entry)}
	var unreadable []string
	err = b.All(func(key string, value []byte) {
		r, err := parse(value)
		if err != nil {
			unreadable = append(unreadable, key)
			return
		}
		p.set(key, r.entry(key[:len(key)/2], len(value)))
	})
	if err != nil {
		return nil, fmt.Errorf("open the kept answers: %w", err)
	}
	b.Delete(slices.Concat(unreadable, p.trimAll(), p.evict())...)
	return p, nil
}

// Wanted reports whether answers to r are kept: GETs of /version, discovery, and
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

// Keep remembers an answer of an apiserver to one of its users. Of a 200 it needs the
// whole body, not compressed; a 304 has none; a 403 revokes what the user has read; all
// others change nothing. It keeps nothing of its arguments.
func (p *Cache) Keep(user string, r *http.Request, status int, header http.Header, body []byte) {
	if !Wanted(r) {
		return
	}
	group, key := p.keys(user, r)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch status {
	case http.StatusOK:
		if encoding := header.Get("Content-Encoding"); len(body) <= MaxBody && (encoding == "" || encoding == "identity") {
			p.keepLocked(key, group, newRecord(user, header, body))
		}
	case http.StatusNotModified:
		p.confirmLocked(user, key, group, currentTag(r, header))
	case http.StatusForbidden:
		p.dropLocked(group)
	}
}

// keepLocked writes an answer, unless it is there.
func (p *Cache) keepLocked(key, group string, r record) {
	now := time.Now()
	value, err := r.bytes(now)
	if err != nil {
		return // a header that is not JSON: there is none
	}
	next := r.entry(group, len(value))
	next.read, next.written = now, now
	if old := p.entries[key]; old != nil && old.sum == next.sum && old.equal(&next.head) && now.Sub(old.written) < writeEvery {
		if _, there := p.table.Get(key); there { // the cache's file may have been replaced
			old.read = now
			return
		}
	}
	p.set(key, next)
	p.table.Put(key, value)
	p.table.Delete(append(p.trim(p.group(group)), p.evict()...)...)
}

// confirmLocked notes which ETag is the current one.
func (p *Cache) confirmLocked(user, key, group, tag string) {
	if tag == "" {
		return
	}
	var r record
	if e := p.entries[key]; e != nil {
		if e.current(tag) && time.Since(e.written) < writeEvery {
			e.read = time.Now()
			return
		}
		if old, ok := p.readLocked(key); ok {
			r = old
		}
	}
	r.User, r.Confirmed = user, tag
	p.keepLocked(key, group, r)
}

// dropLocked forgets all that a user has read at a path.
func (p *Cache) dropLocked(group string) {
	keys := p.group(group)
	for _, key := range keys {
		p.unset(key)
	}
	p.table.Delete(keys...)
}

// Answer returns an answer that was kept for this user: 200, or 304 for a client that has
// it. ok is false where there is none. header and body are the caller's; they have no
// Content-Length.
func (p *Cache) Answer(user string, r *http.Request) (status int, header http.Header, body []byte, ok bool) {
	if !Wanted(r) {
		return 0, nil, nil, false
	}
	group, key := p.keys(user, r)
	tags, types := r.Header.Get("If-None-Match"), accepted(r.Header.Values("Accept"))
	p.mu.Lock()
	defer p.mu.Unlock()
	if status, header, body, ok = p.answerLocked(key, tags); ok {
		return status, header, body, true
	}
	byType := p.byTypeLocked(group)
	for _, contentType := range types {
		for _, key := range byType[contentType] {
			if status, header, body, ok = p.answerLocked(key, tags); ok {
				return status, header, body, true
			}
		}
	}
	return 0, nil, nil, false
}

func (p *Cache) answerLocked(key, tags string) (status int, header http.Header, body []byte, ok bool) {
	e := p.entries[key]
	if e == nil {
		return 0, nil, nil, false
	}
	if tag := e.match(tags); tag != "" {
		return http.StatusNotModified, e.notModified(tag), nil, true
	}
	if e.ContentType == "" {
		return 0, nil, nil, false // only an ETag is known
	}
	r, ok := p.readLocked(key)
	if !ok {
		return 0, nil, nil, false
	}
	return http.StatusOK, r.header(), r.body, true
}

// byTypeLocked returns the keys of a group by media type, what was read last first.
func (p *Cache) byTypeLocked(group string) map[string][]string {
	byType := make(map[string][]string)
	for _, key := range p.sorted(p.group(group)) {
		t := mediaType(p.entries[key].ContentType)
		byType[t] = append(byType[t], key)
	}
	return byType
}

// readLocked reads an answer from the table.
func (p *Cache) readLocked(key string) (record, bool) {
	value, ok := p.table.Get(key)
	if !ok {
		return record{}, false
	}
	r, err := parse(value)
	return r, err == nil
}

// Len is the number of answers.
func (p *Cache) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.entries)
}

// group returns the keys of a group, in no order. Like those below it is for a caller
// that holds mu, or is alone.
func (p *Cache) group(group string) (keys []string) {
	for key, e := range p.entries {
		if e.group == group {
			keys = append(keys, key)
		}
	}
	return keys
}

// sorted puts what was read last first.
func (p *Cache) sorted(keys []string) []string {
	slices.SortFunc(keys, func(a, b string) int { return p.entries[b].read.Compare(p.entries[a].read) })
	return keys
}

// trim takes out what is too much of the keys of a group, and returns it.
func (p *Cache) trim(keys []string) []string {
	if len(keys) <= maxVariants {
		return nil
	}
	excess := p.sorted(keys)[maxVariants:]
	for _, key := range excess {
		p.unset(key)
	}
	return excess
}

// trimAll is trim for all groups.
func (p *Cache) trimAll() (excess []string) {
	groups := make(map[string][]string)
	for key, e := range p.entries {
		groups[e.group] = append(groups[e.group], key)
	}
	for _, keys := range groups {
		excess = append(excess, p.trim(keys)...)
	}
	return excess
}

// set, unset and evict change the list.
func (p *Cache) set(key string, e *entry) {
	p.unset(key)
	p.entries[key] = e
	p.bytes += e.size
}

func (p *Cache) unset(key string) {
	if e := p.entries[key]; e != nil {
		p.bytes -= e.size
		delete(p.entries, key)
	}
}

// evict takes out what is too much, and returns its keys.
func (p *Cache) evict() (keys []string) {
	bounds := quota.Bounds{Count: p.opts.MaxCount, Bytes: p.opts.MaxBytes}
	if !bounds.Exceeded(len(p.entries), p.bytes) {
		return nil
	}
	items := make([]quota.Item[string], 0, len(p.entries))
	for key, e := range p.entries {
		items = append(items, quota.Item[string]{Key: key, User: e.user, Bytes: e.size, Last: e.read.UnixNano()})
	}
	for _, item := range quota.Excess(bounds, items) {
		p.unset(item.Key)
		keys = append(keys, item.Key)
	}
	return keys
}

// keys returns the group of a request and its key, whose first half is the group. It
// consists of what an apiserver looks at, so that nobody fills the cache with answers
// to queries that differ in nothing: of the query that is the schema's hash. Apiservers
// treat a path with a slash at its end like the one without.
func (p *Cache) keys(user string, r *http.Request) (group, key string) {
	path, hash := strings.TrimRight(r.URL.Path, "/"), ""
	if strings.HasPrefix(path, "/openapi/v3/") {
		hash = r.URL.Query().Get("hash")
	}
	group = p.table.Key(user, path, hash)
	return group, group + p.table.Key(strings.Join(r.Header.Values("Accept"), ","))
}
