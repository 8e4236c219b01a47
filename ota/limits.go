package ota

import (
	"errors"
	"io"
	"net/http"

	"github.com/edgehub-io/edgehub/ota/api"
)

// maxBody bounds the body of a request, in bytes. No request needs a body, but some programs
// send one.
const maxBody = 64 << 10

// MaxHeaderBytes bounds the header of a request. It is for the http.Server of the handler. The
// longest paths and a browser's headers take a tenth of it.
const MaxHeaderBytes = 16 << 10

// limitBody reads and drops the body of each request before next gets the request. Otherwise
// net/http would read up to 256 KiB of it after the answer.
func limitBody(next http.Handler) http.Handler {
	return handler(func(w http.ResponseWriter, r *http.Request) error {
		if r.URL.Path == api.UpgradeBundles && r.Method == http.MethodPost { // which reads it, within its own limit
			next.ServeHTTP(w, r)
			return nil
		}
		if err := discardBody(w, r); err != nil {
			w.Header().Set("Connection", "close") // the rest is not read
			return err
		}
		next.ServeHTTP(w, r)
		return nil
	})
}

func discardBody(w http.ResponseWriter, r *http.Request) error {
	if r.ContentLength > maxBody {
		return tooLarge()
	}
	if r.ContentLength == 0 {
		return nil
	}
	_, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxBody))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge()
	}
	if err != nil {
		return failf(http.StatusBadRequest, "the request's body did not arrive whole: %w; no request needs one here", err)
	}
	return nil
}

func tooLarge() error {
	return failf(http.StatusRequestEntityTooLarge, "the request's body is larger than %d KiB: send none, no request needs one here", maxBody>>10)
}
