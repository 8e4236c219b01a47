package proxy

import "net/http"

// responseWriter forwards 1xx responses of the apiserver except 100 Continue: net/http itself
// sends that as soon as the body of the request is read, and a second one would confuse
// clients that expect the final response.
type responseWriter struct {
	http.ResponseWriter
	begun bool // a 1xx was forwarded, after which httputil.ReverseProxy clears the header
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

// suppressDefaults prevents net/http from adding a Content-Type or Date that the apiserver has
// not sent.
func suppressDefaults(h http.Header) {
	for _, name := range []string{"Content-Type", "Date"} {
		if _, ok := h[name]; !ok {
			h[name] = nil
		}
	}
}
