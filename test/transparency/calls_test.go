package transparency

import (
	"bytes"
	"io"
	"net/http"
	"regexp"
	"strings"
)

// call is one request.
type call struct {
	name   string
	method string
	path   string
	header map[string]string
	body   string
	status int // what it is expected to be answered with
	// vary matches what the apiserver makes up anew for each answer; it is
	// masked on both sides.
	vary *regexp.Regexp
	// unzip is set where the apiserver compresses a watch, and the hub undoes it.
	unzip bool
}

func (c call) newBody() io.Reader {
	if c.body == "" {
		return nil
	}
	return bytes.NewReader([]byte(c.body))
}

const (
	protobuf   = "application/vnd.kubernetes.protobuf"
	kubelet    = "application/vnd.kubernetes.protobuf,application/json"
	table      = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
	metaList   = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	metaProto  = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	configMaps = "/api/v1/namespaces/default/configmaps"
	dry        = "?dryRun=All&fieldManager=test"
)

// born matches what differs between two objects made by the same request.
var born = regexp.MustCompile(`"(uid|creationTimestamp|time)":\s?"[^"]*"`)

// progress matches how far the apiserver's watch cache is: it moves on while a request waits.
var progress = regexp.MustCompile(`current: \d+`)

// age matches the age of an object in a Table.
var age = regexp.MustCompile(`"\d+[smh][0-9smh]*"`)

func accept(kind string) map[string]string { return map[string]string{"Accept": kind} }

func content(kind string) map[string]string {
	return map[string]string{"Content-Type": kind, "Accept": "application/json"}
}

func newConfigMap(name, value string) string {
	return `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"` + name + `"},"data":{"k":"` + value + `"}}`
}

// calls are the requests that have to be answered alike. The objects cm and
// large, and ten configmaps list-0 to list-9, exist; f.fill makes them.
var calls = []call{
	{name: "GET", path: configMaps + "/cm", status: 200},
	{name: "GET protobuf", path: configMaps + "/cm", header: accept(protobuf), status: 200},
	{name: "GET as kubelet asks", path: configMaps + "/cm", header: map[string]string{"Accept": kubelet, "Accept-Encoding": "gzip", "User-Agent": "kubelet/v1.37.2"}, status: 200},
	{name: "GET YAML", path: configMaps + "/cm", header: accept("application/yaml"), status: 200},
	{name: "GET CBOR", path: configMaps + "/cm", header: accept("application/cbor"), status: 406},
	{name: "GET pretty", path: configMaps + "/cm?pretty=true", status: 200},
	{name: "GET metadata only, protobuf", path: configMaps + "/cm", header: accept(metaProto), status: 200},
	{name: "GET 1 MB object", path: configMaps + "/large", status: 200},
	{name: "GET 1 MB object with gzip", path: configMaps + "/large", header: map[string]string{"Accept-Encoding": "gzip"}, status: 200},
	{name: "GET 1 MB object as protobuf with gzip", path: configMaps + "/large", header: map[string]string{"Accept": protobuf, "Accept-Encoding": "gzip"}, status: 200},
	{name: "LIST", path: configMaps, status: 200},
	{name: "LIST protobuf", path: configMaps, header: accept(protobuf), status: 200},
	{name: "LIST gzip", path: configMaps, header: map[string]string{"Accept-Encoding": "gzip"}, status: 200},
	{name: "LIST protobuf with gzip", path: configMaps, header: map[string]string{"Accept": protobuf, "Accept-Encoding": "gzip"}, status: 200},
	{name: "LIST metadata only with gzip", path: configMaps, header: map[string]string{"Accept": metaList, "Accept-Encoding": "gzip"}, status: 200},
	{name: "first page of a LIST", path: configMaps + "?limit=3", status: 200},
	{name: "LIST Table as kubectl asks", path: configMaps, header: accept(table), status: 200, vary: age},
	{name: "LIST metadata only", path: configMaps, header: accept(metaList), status: 200},
	{name: "LIST with label selector", path: configMaps + "?labelSelector=n+in+%281%2C2%29", status: 200},
	{name: "LIST with field selector", path: configMaps + "?fieldSelector=metadata.name%3Dcm", status: 200},
	{name: "LIST from the watch cache", path: configMaps + "?resourceVersion=0", status: 200},
	{name: "LIST with a broken continue token", path: configMaps + "?limit=3&continue=abc", status: 400},
	{name: "LIST with a bad selector", path: configMaps + "?labelSelector=a%20b%20c", status: 400},
	{name: "discovery", path: "/apis", status: 200},
	{name: "aggregated discovery", path: "/apis", header: accept("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"), status: 200},
	{name: "/api", path: "/api", status: 200},
	{name: "/version", path: "/version", status: 200},
	{name: "/readyz", path: "/readyz?verbose", status: 200},
	{name: "OpenAPI v3", path: "/openapi/v3", status: 200},
	{name: "OpenAPI v3 of a group", path: "/openapi/v3/api/v1", status: 200},
	{name: "HEAD", method: http.MethodHead, path: configMaps + "/cm", status: 405},
	{name: "OPTIONS", method: http.MethodOptions, path: configMaps, status: 405},

	{name: "404 of an object", path: configMaps + "/nobody", status: 404},
	{name: "404 of an object, protobuf", path: configMaps + "/nobody", header: accept(protobuf), status: 404},
	{name: "404 of a path", path: "/apis/nowhere/v1", status: 404},
	{name: "404 of a path with dots and slashes", path: "/api/v1/../v1//namespaces/%2e%2e/x", status: 404},
	{name: "409 on create", method: http.MethodPost, path: configMaps, header: content("application/json"), body: newConfigMap("cm", "v"), status: 409},
	{name: "409 on a stale update", method: http.MethodPut, path: configMaps + "/cm", header: content("application/json"),
		body: `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"cm","resourceVersion":"1"}}`, status: 409},
	{name: "422", method: http.MethodPost, path: configMaps, header: content("application/json"), body: newConfigMap("No_Such_Name", "v"), status: 422},
	{name: "415", method: http.MethodPost, path: configMaps, header: content("text/plain"), body: "x", status: 415},
	{name: "400 of a broken body", method: http.MethodPost, path: configMaps, header: content("application/json"), body: "{", status: 400},
	{name: "413 of a body over 3 MB", method: http.MethodPost, path: configMaps, header: content("application/json"),
		body: newConfigMap("huge", strings.Repeat("x", 3200000)), status: 413},
	{name: "a body of 1.5 MB that is too large for an object", method: http.MethodPost, path: configMaps, header: content("application/json"),
		body: newConfigMap("huge", strings.Repeat("x", 1500000)), status: 422},

	{name: "dry-run create", method: http.MethodPost, path: configMaps + dry, header: content("application/json"), body: newConfigMap("new", "v"), status: 201, vary: born},
	{name: "create with a warning", method: http.MethodPost, path: configMaps + dry + "&fieldValidation=Warn", header: content("application/json"),
		body: `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"new"},"unknown":1}`, status: 201, vary: born},
	{name: "dry-run delete", method: http.MethodDelete, path: configMaps + "/cm?dryRun=All", status: 200},
	{name: "delete with a precondition that does not hold", method: http.MethodDelete, path: configMaps + "/cm", header: content("application/json"),
		body: `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"00000000-0000-0000-0000-000000000000"}}`, status: 409},
	{name: "JSON patch", method: http.MethodPatch, path: configMaps + "/cm" + dry, header: content("application/json-patch+json"), body: `[{"op":"replace","path":"/data/k","value":"p"}]`, status: 200, vary: born},
	{name: "merge patch", method: http.MethodPatch, path: configMaps + "/cm" + dry, header: content("application/merge-patch+json"), body: `{"data":{"k":"p"}}`, status: 200, vary: born},
	{name: "strategic merge patch", method: http.MethodPatch, path: configMaps + "/cm" + dry, header: content("application/strategic-merge-patch+json"), body: `{"data":{"k":"p"}}`, status: 200, vary: born},
	{name: "server-side apply", method: http.MethodPatch, path: configMaps + "/applied" + dry, header: content("application/apply-patch+yaml"), body: newConfigMap("applied", "v"), status: 201, vary: born},
	{name: "server-side apply with a conflict", method: http.MethodPatch, path: configMaps + "/cm" + dry, header: content("application/apply-patch+yaml"), body: newConfigMap("cm", "other"), status: 409},
	{name: "a patch that does not fit", method: http.MethodPatch, path: configMaps + "/cm" + dry, header: content("application/json-patch+json"), body: `[{"op":"remove","path":"/data/gone"}]`, status: 422},
	{name: "subjectaccessreview", method: http.MethodPost, path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", header: content("application/json"),
		body: `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}`, status: 201, vary: born},
}
