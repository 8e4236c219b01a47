package transform_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/edgehub-io/edgehub/proxy/transform"
)

const (
	hubPort   = 10268
	hubServer = "https://169.254.2.1:10268"
	hubCA     = "-----BEGIN CERTIFICATE-----\nhub\n-----END CERTIFICATE-----\n"
)

func transforms() []transform.Transform {
	return slices.Concat(
		transform.NewAPIServerService([]netip.Addr{netip.MustParseAddr("169.254.2.1"), netip.MustParseAddr("fd00::2:1")}, hubPort),
		transform.NewRootCA(func() []byte { return []byte(hubCA) }, func() []byte { return []byte(clusterCA) }),
		[]transform.Transform{transform.NewKubeProxy(hubServer)},
	)
}

func service(namespace, name string) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: "7", Labels: map[string]string{"port": "443"}},
		Spec: corev1.ServiceSpec{
			ClusterIP:  "10.96.0.1",
			ClusterIPs: []string{"10.96.0.1", "fd01::1"},
			Ports:      []corev1.ServicePort{{Name: "https", Port: 443, TargetPort: intstr.FromInt32(6443), Protocol: corev1.ProtocolTCP}},
		},
	}
}

func configMap(namespace, name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: "8"},
		Data:       data,
	}
}

// hubService is service as the node reads it.
func hubService() *corev1.Service {
	s := service("default", "kubernetes")
	s.Spec.ClusterIP, s.Spec.ClusterIPs, s.Spec.Ports[0].Port = "169.254.2.1", []string{"169.254.2.1", "fd00::2:1"}, hubPort
	return s
}

// encodings are those that package wire reads.
var encodings = []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf}

func serializer(t *testing.T, mediaType string) runtime.SerializerInfo {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), mediaType)
	if !ok {
		t.Fatalf("no serializer for %s", mediaType)
	}
	return info
}

func encode(t *testing.T, mediaType string, o runtime.Object) []byte {
	t.Helper()
	body, err := runtime.Encode(serializer(t, mediaType).Serializer, o)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// encodeEvent encodes an event of a watch as an apiserver does.
func encodeEvent(t *testing.T, mediaType string, event watch.EventType, o runtime.Object) []byte {
	t.Helper()
	var out bytes.Buffer
	info := serializer(t, mediaType).StreamSerializer
	encoder := streaming.NewEncoder(info.NewFrameWriter(&out), info.Serializer)
	if err := encoder.Encode(&metav1.WatchEvent{Type: string(event), Object: runtime.RawExtension{Raw: encode(t, mediaType, o)}}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func decode(t *testing.T, mediaType string, body []byte) runtime.Object {
	t.Helper()
	o, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), body)
	if err != nil {
		t.Fatalf("decode %s: %v\n%s", mediaType, err, body)
	}
	return o
}

// read sends a request through a Transport to a server that answers with body.
func read(t *testing.T, info request.RequestInfo, isNode bool, mediaType string, body []byte) *http.Response {
	t.Helper()
	next := roundTripper(func(r *http.Request) *http.Response {
		return &http.Response{
			StatusCode: http.StatusOK, Request: r, Header: http.Header{"Content-Type": {mediaType}},
			Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
		}
	})
	transport := transform.New(next, transform.Options{
		IsNode:     func(context.Context) bool { return isNode },
		Transforms: transforms(), Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
	})
	info.IsResourceRequest, info.APIVersion = true, "v1"
	r, err := http.NewRequestWithContext(request.WithRequestInfo(t.Context(), &info), http.MethodGet, "http://apiserver/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res
}

type roundTripper func(*http.Request) *http.Response

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

func readAll(t *testing.T, res *http.Response) []byte {
	t.Helper()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func TestTheNodeReadsTheHubInPlaceOfTheApiserver(t *testing.T) {
	kubeconfig := "apiVersion: v1\nkind: Config\nclusters:\n- cluster:\n    certificate-authority: /var/run/ca.crt\n    server: https://cloud.example.com:6443\n  name: default\n"
	for name, tt := range map[string]struct {
		resource string
		in       runtime.Object
		want     func(t *testing.T, o runtime.Object)
	}{
		"the Service of the apiserver has the hub's address and port": {"services", service("default", "kubernetes"), func(t *testing.T, o runtime.Object) {
			if got := o.(*corev1.Service); !reflect.DeepEqual(got.Spec, hubService().Spec) {
				t.Errorf("got %+v", got.Spec)
			}
		}},
		"the root CA is followed by the hub's": {"configmaps", configMap("any", "kube-root-ca.crt", map[string]string{"ca.crt": "cluster", "other": "x"}), func(t *testing.T, o runtime.Object) {
			if got := o.(*corev1.ConfigMap).Data; got["ca.crt"] != "cluster\n"+hubCA || got["other"] != "x" {
				t.Errorf("got %q", got)
			}
		}},
		"kube-proxy connects to the hub": {"configmaps", configMap("kube-system", "kube-proxy", map[string]string{"kubeconfig.conf": kubeconfig, "config.conf": "mode: nftables"}), func(t *testing.T, o runtime.Object) {
			got := o.(*corev1.ConfigMap).Data
			if !strings.Contains(got["kubeconfig.conf"], "server: "+hubServer) || strings.Contains(got["kubeconfig.conf"], "cloud.example.com") ||
				!strings.Contains(got["kubeconfig.conf"], "certificate-authority: /var/run/ca.crt") || got["config.conf"] != "mode: nftables" {
				t.Errorf("got %q", got)
			}
		}},
	} {
		for _, mediaType := range encodings {
			t.Run(name+", "+mediaType, func(t *testing.T) {
				res := read(t, request.RequestInfo{Verb: "get", Resource: tt.resource}, true, mediaType, encode(t, mediaType, tt.in))
				body := readAll(t, res)
				if int64(len(body)) != res.ContentLength {
					t.Errorf("%d bytes, Content-Length %d", len(body), res.ContentLength)
				}
				tt.want(t, decode(t, mediaType, body))
			})
		}
	}
}

func TestAListKeepsEveryOtherItemByteForByte(t *testing.T) {
	for _, mediaType := range encodings {
		t.Run(mediaType, func(t *testing.T) {
			list := &corev1.ServiceList{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceList"}, ListMeta: metav1.ListMeta{ResourceVersion: "9"},
				Items: []corev1.Service{*service("a", "kubernetes"), *service("default", "kubernetes"), *service("default", "other")},
			}
			want := list.DeepCopy()
			want.Items[1] = *hubService()
			for _, l := range []*corev1.ServiceList{list, want} {
				for i := range l.Items {
					l.Items[i].TypeMeta = metav1.TypeMeta{} // as an apiserver writes them
				}
			}
			got := readAll(t, read(t, request.RequestInfo{Verb: "list", Resource: "services"}, true, mediaType, encode(t, mediaType, list)))
			if wanted := encode(t, mediaType, want); !bytes.Equal(got, wanted) {
				t.Errorf("got\n%q\nwant\n%q", got, wanted)
			}
		})
	}
}

func TestAWatchIsTransformedEventByEvent(t *testing.T) {
	for _, mediaType := range encodings {
		t.Run(mediaType, func(t *testing.T) {
			stream := func(objects ...*corev1.Service) (out []byte) {
				for _, o := range objects {
					out = append(out, encodeEvent(t, mediaType, watch.Modified, o)...)
				}
				return out
			}
			in := stream(service("default", "a"), service("default", "kubernetes"), service("default", "b"))
			want := stream(service("default", "a"), hubService(), service("default", "b"))
			res := read(t, request.RequestInfo{Verb: "watch", Resource: "services"}, true, mediaType+";stream=watch", in)
			if got := readAll(t, res); !bytes.Equal(normal(got), normal(want)) {
				t.Errorf("got\n%q\nwant\n%q", got, want)
			}
		})
	}
}

// normal leaves out the newlines with which Go ends a JSON object inside an event.
func normal(stream []byte) []byte { return bytes.ReplaceAll(stream, []byte("\n"), nil) }

func TestEverythingElsePassesUnchanged(t *testing.T) {
	table := []byte(`{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{},"columnDefinitions":[],"rows":[]}`)
	metadata := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"},
	}
	for name, tt := range map[string]struct {
		info   request.RequestInfo
		isNode bool
		body   []byte
	}{
		"another client":          {request.RequestInfo{Verb: "get", Resource: "services"}, false, encode(t, runtime.ContentTypeJSON, service("default", "kubernetes"))},
		"another resource":        {request.RequestInfo{Verb: "get", Resource: "secrets"}, true, encode(t, runtime.ContentTypeJSON, service("default", "kubernetes"))},
		"another API group":       {request.RequestInfo{Verb: "get", Resource: "services", APIGroup: "example.com"}, true, encode(t, runtime.ContentTypeJSON, service("default", "kubernetes"))},
		"a subresource":           {request.RequestInfo{Verb: "get", Resource: "services", Subresource: "status"}, true, encode(t, runtime.ContentTypeJSON, service("default", "kubernetes"))},
		"another namespace":       {request.RequestInfo{Verb: "get", Resource: "services"}, true, encode(t, runtime.ContentTypeJSON, service("a", "kubernetes"))},
		"another name":            {request.RequestInfo{Verb: "get", Resource: "services"}, true, encode(t, runtime.ContentTypeJSON, service("default", "other"))},
		"a write":                 {request.RequestInfo{Verb: "update", Resource: "services"}, true, encode(t, runtime.ContentTypeJSON, service("default", "kubernetes"))},
		"a Table":                 {request.RequestInfo{Verb: "list", Resource: "services"}, true, table},
		"metadata":                {request.RequestInfo{Verb: "get", Resource: "services"}, true, encode(t, runtime.ContentTypeJSON, metadata)},
		"a ConfigMap without CAs": {request.RequestInfo{Verb: "get", Resource: "configmaps"}, true, encode(t, runtime.ContentTypeJSON, configMap("a", "kube-root-ca.crt", map[string]string{"x": "y"}))},
	} {
		t.Run(name, func(t *testing.T) {
			got := readAll(t, read(t, tt.info, tt.isNode, runtime.ContentTypeJSON, tt.body))
			if !bytes.Equal(got, tt.body) {
				t.Errorf("got\n%s\nwant\n%s", got, tt.body)
			}
		})
	}
}

func TestWhatCannotBeTransformedIsAnError(t *testing.T) {
	broken := configMap("kube-system", "kube-proxy", map[string]string{"kubeconfig.conf": "clusters: [}"})
	for name, tt := range map[string]struct {
		mediaType string
		body      []byte
	}{
		"a kubeconfig that is not YAML": {runtime.ContentTypeJSON, encode(t, runtime.ContentTypeJSON, broken)},
		"a body that is cut short":      {runtime.ContentTypeJSON, encode(t, runtime.ContentTypeJSON, broken)[:100]},
		"YAML":                          {runtime.ContentTypeYAML, []byte("kind: ConfigMap\n")},
	} {
		t.Run(name, func(t *testing.T) {
			res := read(t, request.RequestInfo{Verb: "get", Resource: "configmaps"}, true, tt.mediaType, tt.body)
			body := readAll(t, res)
			if res.StatusCode != http.StatusInternalServerError || !strings.Contains(string(body), "--transforms") {
				t.Errorf("got %d: %s", res.StatusCode, body)
			}
		})
	}
}
