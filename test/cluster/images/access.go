package images

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

const tokenPath = "/token"

// access is who may read what.
type access struct {
	mu      sync.Mutex
	readers map[string]map[string]string // by repository: passwords by user
	tokens  map[string]token             // nil: passwords are sent with each request
	life    time.Duration
	hides   bool // omits how long tokens live
}

// token stands for a user whose password was right.
type token struct {
	user    string
	expires time.Time
}

func newAccess() access { return access{readers: map[string]map[string]string{}} }

// Require lets only users with a password read a repository. Each call is for one
// user more. A user of another repository is answered 403, all others 401.
func (r *Registry) Require(repository, user, password string) {
	r.access.mu.Lock()
	defer r.access.mu.Unlock()
	if r.access.readers[repository] == nil {
		r.access.readers[repository] = map[string]string{}
	}
	r.access.readers[repository][user] = password
}

// UseTokens has clients send their password to an address of its own, for a token
// that opens repositories as long as it lives.
func (r *Registry) UseTokens(life time.Duration) {
	r.access.mu.Lock()
	defer r.access.mu.Unlock()
	r.access.tokens, r.access.life = map[string]token{}, life
}

// HideTokenLife makes answers omit how long tokens live, as the specification allows.
func (r *Registry) HideTokenLife() {
	r.access.mu.Lock()
	defer r.access.mu.Unlock()
	r.access.hides = true
}

// permit answers a request itself when it may not go on.
func (r *Registry) permit(w *answer, req *http.Request) bool {
	repository := repositoryOf(req)
	user, known := r.access.identify(req)
	r.traffic.user(w.entry, user)
	switch {
	case r.access.allows(repository, user, known):
		return true
	case known:
		refuse(w, http.StatusForbidden, nil)
	default:
		refuse(w, http.StatusUnauthorized, http.Header{"WWW-Authenticate": {r.challenge(repository)}})
	}
	return false
}

func (r *Registry) challenge(repository string) string {
	r.access.mu.Lock()
	defer r.access.mu.Unlock()
	if r.access.tokens == nil {
		return `Basic realm="images"`
	}
	return fmt.Sprintf(`Bearer realm="%s%s",service="images",scope="repository:%s:pull"`, r.URL(), tokenPath, repository)
}

// identify returns who asks, and whether that is proven.
func (a *access) identify(req *http.Request) (user string, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.tokens == nil {
		user, password, _ := req.BasicAuth()
		return user, a.knowsLocked(user, password)
	}
	name, _ := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	t := a.tokens[name]
	return t.user, t.user != "" && time.Now().Before(t.expires)
}

// knowsLocked reports whether this is the password of the user for any repository.
func (a *access) knowsLocked(user, password string) bool {
	for _, readers := range a.readers {
		if want, ok := readers[user]; ok && want == password {
			return true
		}
	}
	return false
}

func (a *access) allows(repository, user string, known bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	readers := a.readers[repository]
	_, reader := readers[user]
	return len(readers) == 0 || known && reader
}

// serveToken gives out a token for a password, sent in either of the two ways that
// clients have.
func (a *access) serveToken(w *answer, req *http.Request) {
	user, password, _ := req.BasicAuth()
	if req.Method == http.MethodPost {
		user, password = req.PostFormValue("username"), req.PostFormValue("password")
	}
	w.registry.traffic.user(w.entry, user)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.tokens == nil || !a.knowsLocked(user, password) {
		refuse(w, http.StatusUnauthorized, nil)
		return
	}
	name := rand.Text()
	a.tokens[name] = token{user: user, expires: time.Now().Add(a.life)}
	w.Header().Set("Content-Type", "application/json")
	said := map[string]any{"token": name, "access_token": name}
	if !a.hides {
		said["expires_in"] = int(a.life.Seconds())
	}
	_ = json.NewEncoder(w).Encode(said)
}
