package view

import (
	"crypto/sha256"
	"sync"
	"time"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/quota"
)

const (
	// PageTimeout is how long a partial list waits for its next page. An apiserver's
	// continue tokens are valid for five minutes.
	PageTimeout = 5 * time.Minute
	// MaxPages bounds how many lists are read page by page at once. Package quota decides
	// which one is dropped first; its view stays as it is until a later list.
	MaxPages = 64
)

// Pages are the lists of which clients have read some pages, but not the last.
type Pages struct {
	now func() time.Time

	mu    sync.Mutex
	lists map[PageKey]*PartialList
}

// NewPages returns an empty Pages. now returns the time.
func NewPages(now func() time.Time) *Pages {
	return &Pages{now: now, lists: map[PageKey]*PartialList{}}
}

// Len returns how many lists wait for a page.
func (p *Pages) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.lists)
}

// Waiting returns how many lists of a view wait for a page.
func (p *Pages) Waiting(v *View) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.lists {
		if s.View == v {
			n++
		}
	}
	return n
}

// PageKey identifies the next page of a list.
type PageKey struct {
	view  query.Key
	token [sha256.Size]byte
}

// PageOf returns the key of the page of a view that a continue token requests.
func PageOf(key query.Key, token string) PageKey { return PageKey{key, sha256.Sum256([]byte(token))} }

// PartialList is the pages of a list that have been read. Its Builder is not changed while
// it waits: a client may request the same page again.
type PartialList struct {
	*Builder
	View    *View // acquired
	Version string
	until   time.Time
}

// Before returns the pages before a page, or nil.
func (p *Pages) Before(key PageKey) *PartialList {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lists[key]
}

// Wait keeps a list until its next page.
func (p *Pages) Wait(key PageKey, s *PartialList) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.lists[key]; old != nil {
		p.dropLocked(key, old)
	}
	s.until = p.now().Add(PageTimeout)
	p.lists[key] = s
	for _, item := range quota.Excess(quota.Bounds{Count: MaxPages, Bytes: MaxListBytes}, p.itemsLocked()) {
		p.dropLocked(item.Key, p.lists[item.Key])
	}
}

func (p *Pages) itemsLocked() []quota.Item[PageKey] {
	items := make([]quota.Item[PageKey], 0, len(p.lists))
	for key, s := range p.lists {
		items = append(items, quota.Item[PageKey]{Key: key, User: key.view.User, Bytes: s.Bytes, Last: s.until.UnixNano()})
	}
	return items
}

// Done drops the list that waits for a page.
func (p *Pages) Done(key PageKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.lists[key]; s != nil {
		p.dropLocked(key, s)
	}
}

func (p *Pages) dropLocked(key PageKey, s *PartialList) {
	delete(p.lists, key)
	s.End()
	s.View.Release()
}

// Forget drops the lists of a scope: their versions mean other objects now.
func (p *Pages) Forget(scope string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, s := range p.lists {
		if s.View.Scope == scope {
			p.dropLocked(key, s)
		}
	}
}

// Sweep drops lists whose next page was not requested in time.
func (p *Pages) Sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, s := range p.lists {
		if p.now().After(s.until) {
			p.dropLocked(key, s)
		}
	}
}

// With returns a Builder of the pages so far and another one.
func (p *PartialList) With(page *Builder) *Builder {
	whole := p.View.NewBuilder(p.began, p.Consistent)
	whole.Kind, whole.Meta = p.Kind, page.Meta
	whole.merge(p.Items)
	whole.merge(page.Items)
	whole.Bytes = p.Bytes + page.Bytes
	return whole
}
