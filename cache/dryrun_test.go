package cache

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/edgehub-io/edgehub/cache/query"
)

func TestDryRunsAreParsedLikeAnApiserver(t *testing.T) {
	inProtobuf := func(options *metav1.DeleteOptions) string {
		info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), protobuf)
		options.APIVersion, options.Kind = "v1", "DeleteOptions"
		var out bytes.Buffer
		if err := info.Serializer.Encode(options, &out); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	const asJSON = "application/json"
	grace := int64(3)
	tests := map[string]struct {
		method, query, contentType, body string
		want                             bool
	}{
		"no query":                           {http.MethodPatch, "", "", "", false},
		"another parameter":                  {http.MethodPatch, "fieldManager=x", "", "", false},
		"plain":                              {http.MethodPatch, "dryRun=All", "", "", true},
		"encoded":                            {http.MethodPatch, "dr%79Run=All", "", "", true},
		"all of it encoded":                  {http.MethodPut, "%64%72%79%52%75%6e=%41ll", "", "", true},
		"behind others":                      {http.MethodPut, "fieldManager=x&force=true&dryRun=All", "", "", true},
		"twice":                              {http.MethodPut, "dryRun=&dryRun=All", "", "", true},
		"with an unknown value":              {http.MethodPatch, "dryRun=Some", "", "", true},
		"without a value":                    {http.MethodPatch, "dryRun", "", "", true},
		"the word in another parameter":      {http.MethodPatch, "fieldManager=dryRun", "", "", false},
		"the word in another name":           {http.MethodPatch, "xdryRun=All&dryRunX=All&dryrun=All", "", "", false},
		"a pair that is broken":              {http.MethodPatch, "fieldManager=%zz", "", "", true},
		"a pair that old apiservers split":   {http.MethodPatch, "fieldManager=x;dryRun=All", "", "", true},
		"the body of a PATCH is no option":   {http.MethodPatch, "", "application/merge-patch+json", `{"dryRun":["All"]}`, false},
		"DELETE by its query":                {http.MethodDelete, "dr%79Run=All", "", "", true},
		"DELETE":                             {http.MethodDelete, "", "", "", false},
		"DELETE by its body":                 {http.MethodDelete, "", asJSON, `{"kind":"DeleteOptions","apiVersion":"v1","dryRun":["All"]}`, true},
		"DELETE by its body, without a type": {http.MethodDelete, "", "", `{"dryRun":["All"]}`, true},
		"DELETE of a group of its own":       {http.MethodDelete, "", asJSON, `{"kind":"DeleteOptions","apiVersion":"example.com/v1","dryRun":["All"]}`, true},
		"DELETE with an escaped name":        {http.MethodDelete, "", asJSON, `{"dr\u0079Run":["All"]}`, true},
		"DELETE with other options":          {http.MethodDelete, "", asJSON, `{"kind":"DeleteOptions","apiVersion":"example.com/v1","gracePeriodSeconds":0}`, false},
		"DELETE with no dry run":             {http.MethodDelete, "", asJSON, `{"dryRun":[]}`, false},
		"DELETE in protobuf":                 {http.MethodDelete, "", protobuf, inProtobuf(&metav1.DeleteOptions{DryRun: []string{"All"}}), true},
		"DELETE in protobuf, other options":  {http.MethodDelete, "", protobuf, inProtobuf(&metav1.DeleteOptions{GracePeriodSeconds: &grace}), false},
		"DELETE whose body has the say":      {http.MethodDelete, "dryRun=All", asJSON, `{"gracePeriodSeconds":0}`, false},
		"DELETE with an unreadable body":     {http.MethodDelete, "", asJSON, `{`, true},
		"DELETE in an unknown format":        {http.MethodDelete, "", "application/yaml", "gracePeriodSeconds: 0", true},
		"DELETE in protobuf that is none":    {http.MethodDelete, "", protobuf, "no", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRequest(t.Context(), test.method, urlPodA)
			r.URL.RawQuery = test.query
			r.Header.Set("Content-Type", test.contentType)
			if test.body != "" {
				r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(test.body)), nil }
				r.Body, _ = r.GetBody()
			}
			if got := (&exchange{req: r, params: query.ParamsOf(r)}).isDryRun(); got != test.want {
				t.Errorf("it counts as a dry run: %v, want %v", got, test.want)
			}
		})
	}
	t.Run("DELETE whose body is not held", func(t *testing.T) {
		r := newRequest(t.Context(), http.MethodDelete, urlPodA)
		r.Body = io.NopCloser(strings.NewReader(`{}`))
		if !(&exchange{req: r, params: query.ParamsOf(r)}).isDryRun() {
			t.Error("it does not count as a dry run")
		}
	})
}

// A namespace may be named watch.
func TestANamespaceNamedWatchIsNotAWatch(t *testing.T) {
	const of = "?watch=true&resourceVersion=5"
	tests := map[string]bool{ // whether the cache understands it
		"/api/v1/namespaces/watch/pods":                   true,
		"/api/v1/namespaces/watch/pods" + of:              true,
		"/apis/apps/v1/namespaces/watch/deployments" + of: true,
		"/api/v1/pods" + of:                               true,
		"/apis/watch/v1/things" + of:                      true,
		"/api/v1/watch/pods" + of:                         false,
		"/api/v1/watch/namespaces/ns/pods" + of:           false,
		"/apis/apps/v1/watch/deployments" + of:            false,
		"/api/v1/watch/pods?resourceVersion=5":            false,
	}
	for url, want := range tests {
		r := newRequest(t.Context(), http.MethodGet, url)
		info, _ := request.RequestInfoFrom(r.Context())
		if got := query.Of(r, query.ParamsOf(r), info, query.NodeUser) != nil; got != want {
			t.Errorf("%s is understood: %v, want %v", url, got, want)
		}
	}
}
