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
	silent  bool // answers omit how long tokens live, as the specification allows
}

// token stands for a user whose password was right.
type token struct {
	user    string
	expires time.Time
}

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
// that opens repositories as long as it lives, which the registry does or does not say.
func (r *Registry) UseTokens(life time.Duration, silent bool) {
	r.access.mu.Lock()
	defer r.access.mu.Unlock()
	r.access.tokens, r.access.life, r.access.silent = map[string]token{}, life, silent
}

// permit answers a request itself when it may not go on.
func (r *Registry) permit(w http.ResponseWriter, req *http.Request) bool {
	a := &r.access
	a.mu.Lock()
	defer a.mu.Unlock()
	repository := repositoryOf(req)
	user, known := a.identifyLocked(req)
	readers := a.readers[repository]
	_, reader := readers[user]
	switch {
	case len(readers) == 0 || known && reader:
		return true
	case known:
		http.Error(w, "", http.StatusForbidden)
		return false
	case a.tokens == nil:
		w.Header().Set("WWW-Authenticate", `Basic realm="images"`)
	default:
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s%s",service="images",scope="repository:%s:pull"`, r.URL(), tokenPath, repository))
	}
	http.Error(w, "", http.StatusUnauthorized)
	return false
}

// identifyLocked returns who asks, and whether that is proven.
func (a *access) identifyLocked(req *http.Request) (user string, known bool) {
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

// serveToken gives out a token for a password, sent in either of the two ways that
// clients have.
func (a *access) serveToken(w http.ResponseWriter, req *http.Request) {
	user, password, _ := req.BasicAuth()
	if req.Method == http.MethodPost {
		user, password = req.PostFormValue("username"), req.PostFormValue("password")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.tokens == nil || !a.knowsLocked(user, password) {
		http.Error(w, "", http.StatusUnauthorized)
		return
	}
	name := rand.Text()
	a.tokens[name] = token{user: user, expires: time.Now().Add(a.life)}
	w.Header().Set("Content-Type", "application/json")
	said := map[string]any{"token": name, "access_token": name}
	if !a.silent {
		said["expires_in"] = int(a.life.Seconds())
	}
	_ = json.NewEncoder(w).Encode(said)
}
