package identity

import (
	"errors"
	"net/http"
)

// Authenticated reports whether a status code shows that an apiserver has authenticated the
// client. Other codes must not cause a review: a client without a valid token can provoke
// them.
func Authenticated(code int) bool {
	switch code {
	case http.StatusNotModified, http.StatusForbidden, http.StatusNotFound:
		return true
	}
	return code/100 == 2
}

// ErrReassigned is returned when a request is sent again, and its token no longer belongs to
// the user of the first time.
var ErrReassigned = errors.New("its bearer token belongs to another user now")
