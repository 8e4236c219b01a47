package cache

import (
	"crypto/sha256"
	"sync"
	"time"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/quota"
)

const (
	// pageTimeout is how long the pages read so far wait for the next. An
	// apiserver's continue tokens are good for five minutes.
	pageTimeout = 5 * time.Minute
	// maxPages bounds how many lists are read page by page at once. Who loses first
	// says package quota; its client lists again some day.
	maxPages = 64
)

// pages are lists of which some pages have been read.
type pages struct {
	now func() time.Time

	mu     sync.Mutex
	stages map[pageKey]*pageStage
}

func newPages(now func() time.Time) *pages {
	return &pages{now: now, stages: map[pageKey]*pageStage{}}
}

// len is how many lists wait for a page.
func (p *pages) len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.stages)
}

// waiting is how many lists of a view wait for a page.
func (p *pages) waiting(v *view) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.stages {
		if s.view == v {
			n++
		}
	}
	return n
}

// pageKey is the page that is to come.
type pageKey struct {
	view  query.Key
	token [sha256.Size]byte
}

func pageOf(key query.Key, token string) pageKey { return pageKey{key, sha256.Sum256([]byte(token))} }

// pageStage is a list in the making. Its stage is not changed once it waits: a
// client may ask for the same page again.
type pageStage struct {
	*stage
	view    *view // held
	version string
	until   time.Time
}

// before returns what was read before a page, or nil.
func (p *pages) before(key pageKey) *pageStage {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stages[key]
}

// wait keeps a list for its next page.
func (p *pages) wait(key pageKey, s *pageStage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.stages[key]; old != nil {
		p.dropLocked(key, old)
	}
	s.until = p.now().Add(pageTimeout)
	p.stages[key] = s
	for _, item := range quota.Excess(quota.Bounds{Count: maxPages, Bytes: maxStage}, p.itemsLocked()) {
		p.dropLocked(item.Key, p.stages[item.Key])
	}
}

func (p *pages) itemsLocked() []quota.Item[pageKey] {
	items := make([]quota.Item[pageKey], 0, len(p.stages))
	for key, s := range p.stages {
		items = append(items, quota.Item[pageKey]{Key: key, User: key.view.User, Bytes: s.bytes, Last: s.until.UnixNano()})
	}
	return items
}

// done forgets what waits for a page.
func (p *pages) done(key pageKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.stages[key]; s != nil {
		p.dropLocked(key, s)
	}
}

func (p *pages) dropLocked(key pageKey, s *pageStage) {
	delete(p.stages, key)
	s.end()
	s.view.release()
}

// forget drops the lists of a scope: their versions name other objects now.
func (p *pages) forget(scope string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, s := range p.stages {
		if s.view.scope == scope {
			p.dropLocked(key, s)
		}
	}
}

func (p *pages) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, s := range p.stages {
		if p.now().After(s.until) {
			p.dropLocked(key, s)
		}
	}
}

// with is a stage of what was read so far and another page.
func (p *pageStage) with(page *stage) *stage {
	whole := p.view.newStage(p.began, p.consistent)
	whole.kind, whole.meta = p.kind, page.meta
	whole.also(p.items)
	whole.also(page.items)
	whole.bytes = p.bytes + page.bytes
	return whole
}
