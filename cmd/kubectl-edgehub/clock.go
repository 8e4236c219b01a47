package main

import (
	"net/http"
	"sync/atomic"
	"time"
)

// serverClock tells the time by the apiserver, since what it is compared with was
// written in the cluster, and the clock of the machine in front of a person may be
// off. It is exact to a second or two and safe for concurrent use.
type serverClock struct {
	ahead atomic.Int64 // of our own clock, in nanoseconds
}

// listen takes the time from the answers that pass through next.
func (c *serverClock) listen(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		if date, err := http.ParseTime(response.Header.Get("Date")); err == nil { // a proxy in between may leave it out
			c.ahead.Store(int64(time.Until(date)))
		}
		return response, nil
	})
}

// now is our own clock's time until the apiserver has answered once.
func (c *serverClock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
