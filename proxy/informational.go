package proxy

import "net/http"

// responseWriter is a response on which 1xx answers of the apiserver are passed on, but
// 100 Continue: net/http sends that by itself as soon as the body of the request is
// read. A second one would confuse clients that take it for the beginning of the answer.
type responseWriter struct {
	http.ResponseWriter
	begun bool // something was passed on, after which httputil.ReverseProxy clears the header
}

// Unwrap is for http.ResponseController.
func (i *responseWriter) Unwrap() http.ResponseWriter { return i.ResponseWriter }

func (i *responseWriter) WriteHeader(code int) {
	switch {
	case code == http.StatusContinue:
		return
	case code < http.StatusOK && code != http.StatusSwitchingProtocols:
		i.begun = true
	case i.begun:
		suppressDefaults(i.Header())
	}
	i.ResponseWriter.WriteHeader(code)
}

// suppressDefaults keeps net/http from guessing a type, or adding a date of its own, where the
// apiserver sent none.
func suppressDefaults(h http.Header) {
	for _, name := range []string{"Content-Type", "Date"} {
		if _, ok := h[name]; !ok {
			h[name] = nil
		}
	}
}
