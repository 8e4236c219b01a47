package cache

import (
	"bytes"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/edgehub-io/edgehub/cache/negotiation"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// isDryRun reports whether a write may have changed nothing, so that its answer shows
// what does not exist. It reads the request as an apiserver does. A request that cannot
// be read counts as a dry run: what it shows must not be kept.
func (x *exchange) isDryRun() bool {
	if x.params.Broken {
		return true
	}
	if x.req.Method != http.MethodDelete {
		return x.params.Has("dryRun")
	}
	body, err := x.body()
	switch {
	case err != nil:
		return true
	case len(body) == 0:
		return x.params.Has("dryRun")
	}
	// An apiserver that gets DeleteOptions in the body does not look at the query.
	options, err := deleteOptions(x.req.Header.Get("Content-Type"), body)
	return err != nil || len(options.DryRun) > 0
}

// deleteOptions decodes the body of a DELETE, in JSON if it does not say otherwise.
// Clients send DeleteOptions in whatever group and version they like, so the type is
// not looked at.
func deleteOptions(contentType string, body []byte) (*metav1.DeleteOptions, error) {
	encoding, options := wire.JSON, &metav1.DeleteOptions{}
	if contentType != "" {
		encoding = negotiation.ParseContentType(contentType).Encoding
	}
	switch encoding {
	case wire.JSON:
		err := json.Unmarshal(body, options)
		return options, err
	case wire.Protobuf:
		_, raw, err := wire.Bare(encoding, body)
		if err != nil || bytes.Equal(raw, body) { // it does not say that it is protobuf
			return nil, fmt.Errorf("read DeleteOptions: %w", wire.ErrMalformed)
		}
		err = options.Unmarshal(raw)
		return options, err
	}
	return nil, fmt.Errorf("read DeleteOptions in %q: %w", contentType, wire.ErrEncoding)
}
