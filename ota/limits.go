package ota

import (
	"errors"
	"io"
	"net/http"
)

// maxBody is how large the body of a request may be. Nothing here reads one, but
// some programs send one all the same.
const maxBody = 64 << 10

// MaxHeaderBytes is how large the header of a request may be; it is for the
// http.Server that the handler is served by. The longest paths and the headers of
// a browser take a tenth of it.
const MaxHeaderBytes = 16 << 10

// limitBody passes requests on to next once their body, if any, has arrived and
// is small. It is read since net/http would otherwise take in 256 KiB of it after
// the answer.
func limitBody(next http.Handler) http.Handler {
	return handler(func(w http.ResponseWriter, r *http.Request) error {
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
