package authn

import (
	"errors"
	"fmt"
	"net/http"
)

// errOutsideValidity is wrapped by the error of ClientCert for the node's own certificate before
// its beginning or after its end.
var errOutsideValidity = errors.New("outside of its validity")

// OrOwnProgram returns an Authenticator that asks certificate first, which is a ClientCert. A
// caller that it refuses is the node all the same if program says so, and if it may be a kubelet
// whose certificate has expired. Once that has happened, kubelet's certificate manager presents
// none in general (client-go, util/certificate, Current), and the expired one when it asks for a
// new one. So program is asked about callers
//   - with the node's own certificate outside of its validity,
//   - without a certificate, while away returns true. Those are kubelet's only if lapsed returns nil.
//
// program is a LoopbackFor that refuses whoever is not a program of the node itself. lapsed is asked
// after it, since it costs more.
func OrOwnProgram(certificate, program Authenticator, away func() bool, lapsed func(*http.Request) error) Authenticator {
	return func(r *http.Request) (Identity, error) {
		id, err := certificate(r)
		if err == nil {
			return id, nil
		}
		shown := r.TLS != nil && len(r.TLS.PeerCertificates) > 0
		if shown && !errors.Is(err, errOutsideValidity) || !shown && !away() {
			return id, err
		}
		id, programErr := program(r)
		if programErr == nil && !shown {
			programErr = lapsed(r)
		}
		if programErr != nil {
			return Caller, fmt.Errorf("%w; %s", err, programErr.Error())
		}
		return id, nil
	}
}
