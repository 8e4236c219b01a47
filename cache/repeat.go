package cache

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/edgehub-io/edgehub/cache/answer"
	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/repeat"
)

// tableAnswers is the name of the log's table of last answers.
const tableAnswers = "answers"

// question returns the exchange as one whose last answer is repeated offline, or nil.
func (x *exchange) question() *repeat.Request {
	q := &repeat.Request{HTTP: x.req, Info: x.info, User: x.who.user, Body: x.body}
	if !x.cache.writes.answers.Wants(q) {
		return nil
	}
	return q
}

// keep keeps an apiserver's answer to a question. That to a dry run is of what does not exist.
func (w *writes) keep(x *exchange, q *repeat.Request, res *http.Response) {
	if x.info.IsResourceRequest && x.isDryRun() {
		return
	}
	last := &repeat.Response{Code: res.StatusCode, Header: res.Header.Clone()}
	keep := func(body []byte) error {
		last.Body = body
		return w.answers.Keep(q, last)
	}
	if res.StatusCode/100 == 2 {
		x.take(res, keep)
		return
	}
	x.cache.logUnkept(keep(nil))
}

// repeat answers a question offline.
func (w *writes) repeat(x *exchange, q *repeat.Request) (*http.Response, error) {
	last, err := w.answers.Answer(q)
	switch {
	case errors.Is(err, convert.ErrNotAcceptable):
		return answer.ErrorResponse(x.req, answer.NotAcceptable(&query.Query{Resource: x.resource(), Accept: x.req.Header.Get("Accept")}))
	case err != nil:
		return nil, err
	}
	res := answer.BytesResponse(x.req, last.Code, "", last.Body)
	for name, values := range last.Header {
		res.Header[name] = values
	}
	if last.Code == http.StatusNotModified {
		res.Header.Del("Content-Length")
	}
	return res, nil
}

// denial returns why a review is answered with no.
func (c *Cache) denial() string {
	ttl := c.opts.AuthorizationTTL
	if ttl <= 0 {
		return fmt.Sprintf("edgehub: the cloud %s, and --offline-authorization-ttl=0 lets nobody in then", c.outages.Away())
	}
	return fmt.Sprintf("edgehub: the cloud %s, and within %v (--offline-authorization-ttl) it has not said yes to this, asked by the node", c.outages.Away(), ttl)
}
