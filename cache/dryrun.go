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
// exist: its answer must not be cached.
func (x *exchange) isDryRun() bool {
	dry, certain := x.dryRun()
	return dry || !certain
}

// dryRun reports whether a write changes nothing, and whether that is certain. It parses the request like an apiserver.
func (x *exchange) dryRun() (dry, certain bool) {
	if x.req.Method == http.MethodDelete {
		body, err := x.body()
		if err != nil {
			return false, false
		}
		if len(body) > 0 { // with DeleteOptions in it, an apiserver ignores the query
			options, err := deleteOptions(x.req.Header.Get("Content-Type"), body)
			return err == nil && len(options.DryRun) > 0, err == nil
		}
	}
	return x.params.Has("dryRun") && !x.params.Broken, !x.params.Broken
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
