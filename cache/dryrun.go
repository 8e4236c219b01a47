package cache

import (
	"bytes"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/edgehub-io/edgehub/cache/wire"
)

// isDryRun reports whether a write may be a dry run, whose answer shows objects that do not
// exist. It parses the request like an apiserver. A request that cannot be parsed counts as
// a dry run: its answer must not be cached.
func (x *exchange) isDryRun() bool {
	if x.params.Broken || x.req.Method != http.MethodDelete {
		return x.params.Broken || x.params.Has("dryRun")
	}
	dry, certain := x.isDryRunDelete()
	return dry || !certain
}

// isDryRunDelete reports whether a DELETE changes nothing, and whether that is certain.
func (x *exchange) isDryRunDelete() (dry, certain bool) {
	body, err := x.body()
	switch {
	case err != nil:
		return false, false
	case len(body) == 0:
		return x.params.Has("dryRun") && !x.params.Broken, !x.params.Broken
	}
	// With DeleteOptions in the body, an apiserver ignores the query.
	options, err := deleteOptions(x.req.Header.Get("Content-Type"), body)
	if err != nil {
		return false, false
	}
	return len(options.DryRun) > 0, true
}

// deleteOptions decodes the body of a DELETE, by default as JSON. It ignores the type: clients
// send DeleteOptions of various groups and versions.
func deleteOptions(contentType string, body []byte) (*metav1.DeleteOptions, error) {
	encoding, options := wire.JSON, &metav1.DeleteOptions{}
	if contentType != "" {
		encoding = wire.ParseContentType(contentType).Encoding
	}
	switch encoding {
	case wire.JSON:
		err := json.Unmarshal(body, options)
		return options, err
	case wire.Protobuf:
		_, raw, err := wire.Bare(encoding, body)
		if err != nil || bytes.Equal(raw, body) { // without the prefix of protobuf
			return nil, fmt.Errorf("read DeleteOptions: %w", wire.ErrMalformed)
		}
		err = options.Unmarshal(raw)
		return options, err
	}
	return nil, fmt.Errorf("read DeleteOptions in %q: %w", contentType, wire.ErrEncoding)
}
