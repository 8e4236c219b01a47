package access

import (
	"fmt"
	"net/http"

	"github.com/edgehub-io/edgehub/hub/csrf"
	"github.com/edgehub-io/edgehub/proxy"
)

// CheckCSRF is next, but lends nothing to what may be a web page in a browser
// on this node. Callers with credentials of their own are not looked at: a
// website has none, and to everybody else the hub is an apiserver.
func CheckCSRF(next proxy.Authenticator) proxy.Authenticator {
	return func(r *http.Request) (proxy.Identity, error) {
		id, err := next(r)
		if err != nil || id != proxy.Node {
			return id, err
		}
		if err := csrf.Check(r); err != nil {
			return proxy.Caller, fmt.Errorf("%w: %w; a caller with a bearer token of its own is not asked that", proxy.ErrForbidden, err)
		}
		return id, nil
	}
}
