package proxy

import (
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// requestInfo parses r. The factory gets only the query parameters that it uses and can parse:
// if it cannot, it logs the whole query, which may contain tokens. Refusing an invalid query
// is left to the apiserver.
func (p *Proxy) requestInfo(r *http.Request) (*request.RequestInfo, error) {
	known := &url.URL{Path: r.URL.Path}
	if r.URL.RawQuery != "" {
		known.RawQuery = parsable(r.URL.Query()).Encode()
	}
	return p.requests.NewRequestInfo(&http.Request{Method: r.Method, URL: known})
}

func parsable(query url.Values) url.Values {
	out := url.Values{}
	if watch := query["watch"]; len(watch) > 0 { // all values are valid
		out["watch"] = watch
	}
	if text := query.Get("fieldSelector"); text != "" {
		if _, err := fields.ParseSelector(text); err == nil {
			out.Set("fieldSelector", text)
		}
	}
	if text := query.Get("labelSelector"); text != "" {
		if _, err := labels.Parse(text); err == nil {
			out.Set("labelSelector", text)
		}
	}
	return out
}
