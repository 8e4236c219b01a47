package webtoken

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/edgehub-io/edgehub/ota/api"
)

// maxBody bounds the body with a code, in bytes.
const maxBody = 4096

// FromBrowser reports whether a browser sent r. Browsers send Origin if the method is not GET or HEAD, and
// Sec-Fetch-Site to loopback and over TLS; a page can take away neither. Old ones leave out both: each calls
// itself Mozilla, which a page elsewhere cannot change either.
func FromBrowser(r *http.Request) bool {
	if strings.HasPrefix(r.UserAgent(), "Mozilla/") {
		return true
	}
	for name := range r.Header {
		if name == "Origin" || strings.HasPrefix(name, "Sec-Fetch-") {
			return true
		}
	}
	return false
}

// Guard passes requests to next. It answers those of browsers that may change something, and have no valid
// token, with 401 and one line of text.
func (t *Tokens) Guard(next http.Handler) http.Handler {
	guarded := t.Require(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			next.ServeHTTP(w, r)
			return
		}
		guarded.ServeHTTP(w, r)
	})
}

// Require is Guard for what needs a token whatever the method.
func (t *Tokens) Require(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if FromBrowser(r) && !t.valid(r.Header.Get(api.TokenHeader)) {
			refuse(w, http.StatusUnauthorized, "this browser may not change anything")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// NewCode answers a program with a one-time code, as JSON. A browser gets 403: it would be able to give
// itself a token.
func (t *Tokens) NewCode(w http.ResponseWriter, r *http.Request) {
	if FromBrowser(r) {
		refuse(w, http.StatusForbidden, "a browser gets no one-time code: edgehubctl web prints a link with one")
		return
	}
	code, err := t.newCode()
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	t.log.Info("a one-time code for the owner's page was requested", "remote", r.RemoteAddr)
	answer(w, code)
}

// Exchange answers a code in the body with a token, as JSON.
func (t *Tokens) Exchange(w http.ResponseWriter, r *http.Request) {
	var code api.Code
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&code); err != nil {
		refuse(w, http.StatusBadRequest, `the request's body is no code: want {"code":"…"}`)
		return
	}
	token, err := t.exchange(code.Code)
	switch {
	case errors.Is(err, errWrongCode):
		refuse(w, http.StatusForbidden, err.Error()) // at once: a code has 130 bits, which nobody guesses at any rate
	case err != nil:
		refuse(w, http.StatusInternalServerError, err.Error())
	default:
		t.log.Info("a browser may change what the owner's page offers", "remote", r.RemoteAddr, "until", token.Expires)
		answer(w, token)
	}
}

// refuse closes the connection, since the body was not read.
func refuse(w http.ResponseWriter, code int, line string) {
	w.Header().Set("Connection", "close")
	http.Error(w, line, code)
}

// answer sends v to one caller only: no cache may keep it.
func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(v) // fails when the caller is gone
}
