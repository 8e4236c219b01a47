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
	// MaxPartialLists bounds how many lists are read page by page at once. Package quota decides
	// which one is dropped first; its view stays as it is until a later list.
	MaxPartialLists = 64
)

// Pages are the lists of which clients have read some pages, but not the last, which completes their view. They are safe for
// concurrent use.
type Pages struct {
	mu    sync.Mutex
	lists map[page]*PartialList
}

// NewPages returns empty Pages.
func NewPages() *Pages { return &Pages{lists: map[page]*PartialList{}} }

// Len returns how many lists wait for a page.
func (l *Pages) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lists)
}

// Waiting returns how many lists of a view wait for a page.
func (l *Pages) Waiting(v *View) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, list := range l.lists {
		if list.View == v {
			n++
		}
	}
	return n
}

// page identifies the next page of a list.
type page struct {
	view  query.Key
	token [sha256.Size]byte
}

// pageOf returns the key of the page of a view that a continue token requests.
func pageOf(key query.Key, token string) page {
	return page{key, sha256.Sum256([]byte(token))}
}

// PartialList is the pages of a list that have been read. Its Builder is not changed while
// it waits: a client may request the same page again.
type PartialList struct {
	*Builder
	View    *View // acquired
	Version string
	until   time.Time
}

// Before returns the pages of a view before the one that a continue token requests, or nil.
func (l *Pages) Before(key query.Key, token string) *PartialList {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lists[pageOf(key, token)]
}

// Wait keeps a list until its next page, which a continue token requests.
func (l *Pages) Wait(token string, list *PartialList) {
	key := pageOf(list.View.Key, token)
	l.mu.Lock()
	defer l.mu.Unlock()
	if old := l.lists[key]; old != nil {
		l.dropLocked(key, old)
	}
	list.until = time.Now().Add(PageTimeout)
	l.lists[key] = list
	for _, item := range quota.Excess(quota.Bounds{Count: MaxPartialLists, Bytes: MaxListBytes}, l.itemsLocked()) {
		l.dropLocked(item.Key, l.lists[item.Key])
	}
}

func (l *Pages) itemsLocked() []quota.Item[page] {
	items := make([]quota.Item[page], 0, len(l.lists))
	for key, list := range l.lists {
		items = append(items, quota.Item[page]{Key: key, User: key.view.User, Bytes: list.Bytes, Last: list.until.UnixNano()})
	}
	return items
}

// Done drops the list of a view that waits for a page.
func (l *Pages) Done(of query.Key, token string) {
	key := pageOf(of, token)
	l.mu.Lock()
	defer l.mu.Unlock()
	if list := l.lists[key]; list != nil {
		l.dropLocked(key, list)
	}
}

func (l *Pages) dropLocked(key page, list *PartialList) {
	delete(l.lists, key)
	list.End()
	list.View.Release()
}

// Sweep drops lists whose next page was not requested in time.
func (l *Pages) Sweep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, list := range l.lists {
		if time.Now().After(list.until) {
			l.dropLocked(key, list)
		}
	}
}
