package access

import (
	"fmt"
	"net/http"

	"github.com/edgehub-io/edgehub/hub/csrf"
	"github.com/edgehub-io/edgehub/proxy/authn"
)

// CheckCSRF wraps next and denies the node's identity to requests that may come from a web
// page in a browser on this node. Callers with credentials of their own are not checked: a
// website has none.
func CheckCSRF(next authn.Authenticator) authn.Authenticator {
	return func(r *http.Request) (authn.Identity, error) {
		id, err := next(r)
		if err != nil || id != authn.Node {
			return id, err
		}
		if err := csrf.Check(r); err != nil {
			return authn.Caller, fmt.Errorf("%w: %w; a caller with a bearer token of its own is not asked that", authn.ErrForbidden, err)
		}
		return id, nil
	}
}
