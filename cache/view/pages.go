package view

import (
	"crypto/sha256"
	"sync"
	"time"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/quota"
)

const (
	// PageTimeout is how long the pages read so far wait for the next. An
	// apiserver's continue tokens are good for five minutes.
	PageTimeout = 5 * time.Minute
	// MaxPages bounds how many lists are read page by page at once. Who loses first
	// says package quota; its client lists again some day.
	MaxPages = 64
)

// Pages are lists of which some pages have been read.
type Pages struct {
	now func() time.Time

	mu     sync.Mutex
	stages map[PageKey]*PageStage
}

// NewPages returns no lists. now is the time.
func NewPages(now func() time.Time) *Pages {
	return &Pages{now: now, stages: map[PageKey]*PageStage{}}
}

// Len is how many lists wait for a page.
func (p *Pages) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.stages)
}

// Waiting is how many lists of a view wait for a page.
func (p *Pages) Waiting(v *View) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.stages {
		if s.View == v {
			n++
		}
	}
	return n
}

// PageKey is the page that is to come.
type PageKey struct {
	view  query.Key
	token [sha256.Size]byte
}

// PageOf is the page of a view that a continue token asks for.
func PageOf(key query.Key, token string) PageKey { return PageKey{key, sha256.Sum256([]byte(token))} }

// PageStage is a list in the making. Its stage is not changed once it waits: a
// client may ask for the same page again.
type PageStage struct {
	*Stage
	View    *View // held
	Version string
	until   time.Time
}

// Before returns what was read before a page, or nil.
func (p *Pages) Before(key PageKey) *PageStage {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stages[key]
}

// Wait keeps a list for its next page.
func (p *Pages) Wait(key PageKey, s *PageStage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.stages[key]; old != nil {
		p.dropLocked(key, old)
	}
	s.until = p.now().Add(PageTimeout)
	p.stages[key] = s
	for _, item := range quota.Excess(quota.Bounds{Count: MaxPages, Bytes: MaxStage}, p.itemsLocked()) {
		p.dropLocked(item.Key, p.stages[item.Key])
	}
}

func (p *Pages) itemsLocked() []quota.Item[PageKey] {
	items := make([]quota.Item[PageKey], 0, len(p.stages))
	for key, s := range p.stages {
		items = append(items, quota.Item[PageKey]{Key: key, User: key.view.User, Bytes: s.Bytes, Last: s.until.UnixNano()})
	}
	return items
}

// Done forgets what waits for a page.
func (p *Pages) Done(key PageKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.stages[key]; s != nil {
		p.dropLocked(key, s)
	}
}

func (p *Pages) dropLocked(key PageKey, s *PageStage) {
	delete(p.stages, key)
	s.End()
	s.View.Release()
}

// Forget drops the lists of a scope: their versions name other objects now.
func (p *Pages) Forget(scope string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, s := range p.stages {
		if s.View.Scope == scope {
			p.dropLocked(key, s)
		}
	}
}

// Sweep drops lists whose next page was not asked for in time.
func (p *Pages) Sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, s := range p.stages {
		if p.now().After(s.until) {
			p.dropLocked(key, s)
		}
	}
}

// With is a stage of what was read so far and another page.
func (p *PageStage) With(page *Stage) *Stage {
	whole := p.View.NewStage(p.began, p.Consistent)
	whole.Kind, whole.Meta = p.Kind, page.Meta
	whole.also(p.Items)
	whole.also(page.Items)
	whole.Bytes = p.Bytes + page.Bytes
	return whole
}
