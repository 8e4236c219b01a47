package identity

import (
	"errors"
	"net/http"
)

// Authenticated reports whether an answer of this code shows that an apiserver has
// authenticated its caller. Others are no reason to review a token: who has none
// that is valid can provoke them.
func Authenticated(code int) bool {
	switch code {
	case http.StatusNotModified, http.StatusForbidden, http.StatusNotFound:
		return true
	}
	return code/100 == 2
}

// ErrReassigned is for whoever sends a request again: its token belongs to another user than
// it did when the request was first sent.
var ErrReassigned = errors.New("its bearer token belongs to another user now")
