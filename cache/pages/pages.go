// Package pages keeps lists that clients read page by page, until the last page completes
// their view.
package pages

import (
	"crypto/sha256"
	"sync"
	"time"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/quota"
	"github.com/edgehub-io/edgehub/cache/view"
)

const (
	// Timeout is how long a partial list waits for its next page. An apiserver's
	// continue tokens are valid for five minutes.
	Timeout = 5 * time.Minute
	// Max bounds how many lists are read page by page at once. Package quota decides
	// which one is dropped first; its view stays as it is until a later list.
	Max = 64
)

// Lists are the lists of which clients have read some pages, but not the last.
type Lists struct {
	now func() time.Time

	mu    sync.Mutex
	lists map[Key]*List
}

// New returns empty Lists. now returns the time.
func New(now func() time.Time) *Lists {
	return &Lists{now: now, lists: map[Key]*List{}}
}

// Len returns how many lists wait for a page.
func (l *Lists) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lists)
}

// Waiting returns how many lists of a view wait for a page.
func (l *Lists) Waiting(v *view.View) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, list := range l.lists {
		if list.View == v {
			n++
		}
	}
	return n
}

// Key identifies the next page of a list.
type Key struct {
	view  query.Key
	token [sha256.Size]byte
}

// KeyOf returns the key of the page of a view that a continue token requests.
func KeyOf(key query.Key, token string) Key { return Key{key, sha256.Sum256([]byte(token))} }

// List is the pages of a list that have been read. Its Builder is not changed while
// it waits: a client may request the same page again.
type List struct {
	*view.Builder
	View    *view.View // acquired
	Version string
	until   time.Time
}

// Before returns the pages before a page, or nil.
func (l *Lists) Before(key Key) *List {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lists[key]
}

// Wait keeps a list until its next page.
func (l *Lists) Wait(key Key, list *List) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if old := l.lists[key]; old != nil {
		l.dropLocked(key, old)
	}
	list.until = l.now().Add(Timeout)
	l.lists[key] = list
	for _, item := range quota.Excess(quota.Bounds{Count: Max, Bytes: view.MaxListBytes}, l.itemsLocked()) {
		l.dropLocked(item.Key, l.lists[item.Key])
	}
}

func (l *Lists) itemsLocked() []quota.Item[Key] {
	items := make([]quota.Item[Key], 0, len(l.lists))
	for key, list := range l.lists {
		items = append(items, quota.Item[Key]{Key: key, User: key.view.User, Bytes: list.Bytes, Last: list.until.UnixNano()})
	}
	return items
}

// Done drops the list that waits for a page.
func (l *Lists) Done(key Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if list := l.lists[key]; list != nil {
		l.dropLocked(key, list)
	}
}

func (l *Lists) dropLocked(key Key, list *List) {
	delete(l.lists, key)
	list.End()
	list.View.Release()
}

// Sweep drops lists whose next page was not requested in time.
func (l *Lists) Sweep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, list := range l.lists {
		if l.now().After(list.until) {
			l.dropLocked(key, list)
		}
	}
}
