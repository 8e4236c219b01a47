package limits

import (
	"cmp"
	"sync"
)

// Shares bounds how many requests are in flight, and keeps room for those who have few: a request
// is admitted while those of its tenant and of its user, added up, are fewer than the places that
// are free. So a user that takes all it can gets a third of what is free, and a tenant with many users
// half; the next one gets as much of the rest.
type Shares struct {
	limit int

	mu      sync.Mutex
	n       int
	tenants map[string]int
	users   map[user]int
}

// user is a user of a tenant; other tenants may have users of the same name.
type user struct{ tenant, name string }

// NewShares returns Shares of limit requests.
func NewShares(limit int) *Shares {
	return &Shares{limit: limit, tenants: map[string]int{}, users: map[user]int{}}
}

// Enter admits a request of a tenant's user until it leaves. It returns false if they have their
// share.
func (s *Shares) Enter(tenant, name string) (*Share, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	share := &Share{of: s, user: user{tenant, name}}
	if !s.fitsLocked(share.user) {
		return nil, false
	}
	s.addLocked(share.user, 1)
	return share, true
}

// Len returns how many requests are in flight.
func (s *Shares) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

func (s *Shares) fitsLocked(u user) bool { return s.tenants[u.tenant]+s.users[u] < s.limit-s.n }

func (s *Shares) addLocked(u user, n int) {
	s.n += n
	if s.tenants[u.tenant] += n; s.tenants[u.tenant] == 0 {
		delete(s.tenants, u.tenant)
	}
	if s.users[u] += n; s.users[u] == 0 {
		delete(s.users, u)
	}
}

// Share is the place of one request. Its methods must not be called at the same time.
type Share struct {
	of   *Shares
	user user
	left bool
}

// Tenant returns for whom the request counts.
func (h *Share) Tenant() string { return h.user.tenant }

// Payer returns who pays for the request: its tenant, or its user while nobody knows that. Users without a tenant have
// no name that a tenant may have.
func (h *Share) Payer() string { return cmp.Or(h.user.tenant, h.user.name) }

// Move counts the request for another user, and reports whether it would have been admitted as
// that user's.
func (h *Share) Move(tenant, name string) (fits bool) {
	h.of.mu.Lock()
	defer h.of.mu.Unlock()
	h.of.addLocked(h.user, -1)
	h.user = user{tenant, name}
	fits = h.of.fitsLocked(h.user)
	h.of.addLocked(h.user, 1)
	return fits
}

// Leave ends the request. It is idempotent.
func (h *Share) Leave() {
	h.of.mu.Lock()
	defer h.of.mu.Unlock()
	if !h.left {
		h.left = true
		h.of.addLocked(h.user, -1)
	}
}
