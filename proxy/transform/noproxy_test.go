package transform_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http/httpproxy"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/edgehub-io/edgehub/proxy/transform"
)

// podWith returns a pod with three containers, one of each kind, that have the same variables.
func podWith(c corev1.Container) *corev1.Pod {
	c.Name = "c"
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p", ResourceVersion: "9", Annotations: map[string]string{"HTTPS_PROXY": "x"}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{c, {Name: "plain"}}, InitContainers: []corev1.Container{c},
			EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon(c), TargetContainerName: "c"}},
		},
	}
}

func variables(pairs ...string) (all []corev1.EnvVar) {
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, corev1.EnvVar{Name: pairs[i], Value: pairs[i+1]})
	}
	return all
}

// readAs gets an object as a client of the node with this User-Agent does.
func readAs(t *testing.T, userAgent, mediaType string, o runtime.Object) []byte {
	t.Helper()
	next := roundTripper(func(r *http.Request) *http.Response {
		return &http.Response{StatusCode: http.StatusOK, Request: r, Header: http.Header{"Content-Type": {mediaType}}, Body: io.NopCloser(bytes.NewReader(encode(t, mediaType, o)))}
	})
	transport := transform.New(next, transform.Options{
		IsNode:     func(context.Context) bool { return true },
		Transforms: transforms(), Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
	})
	info := request.RequestInfo{IsResourceRequest: true, APIVersion: "v1", Verb: "list", Resource: "pods"}
	r, err := http.NewRequestWithContext(request.WithRequestInfo(t.Context(), &info), http.MethodGet, "http://apiserver/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("User-Agent", userAgent)
	res, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	return readAll(t, res)
}

const kubelet = "kubelet/v1.31.0 (linux/amd64) kubernetes/9edcffc"

func TestContainersWithAProxyReachTheHubWithoutIt(t *testing.T) {
	const both = "169.254.2.1,fd00::2:1"
	elsewhere := corev1.EnvVar{Name: "NO_PROXY", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{Key: "k"}}}
	envFrom := []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}}}
	for name, tt := range map[string]struct {
		in   corev1.Container
		want []corev1.EnvVar // nil: as it is
	}{
		"its NO_PROXY lacks the hub": {
			corev1.Container{Env: variables("HTTPS_PROXY", "http://p", "NO_PROXY", ".svc,10.96.0.0/12", "A", "1")},
			variables("HTTPS_PROXY", "http://p", "NO_PROXY", ".svc,10.96.0.0/12,"+both, "A", "1"),
		},
		"both cases": {
			corev1.Container{Env: variables("NO_PROXY", "a", "no_proxy", "b,", "https_proxy", "http://p")},
			variables("NO_PROXY", "a,"+both, "no_proxy", "b,"+both, "https_proxy", "http://p"),
		},
		"it has no NO_PROXY":          {corev1.Container{Env: variables("HTTP_PROXY", "http://p")}, variables("HTTP_PROXY", "http://p", "NO_PROXY", both)},
		"it has no no_proxy":          {corev1.Container{Env: variables("A", "1", "all_proxy", "http://p")}, variables("A", "1", "all_proxy", "http://p", "no_proxy", both)},
		"its proxy is from elsewhere": {corev1.Container{Env: variables("NO_PROXY", "a"), EnvFrom: envFrom}, variables("NO_PROXY", "a,"+both)},
		"one with a port":             {corev1.Container{Env: variables("NO_PROXY", "169.254.2.1:10268")}, variables("NO_PROXY", "169.254.2.1:10268,"+both)},
		"one of the addresses":        {corev1.Container{Env: variables("NO_PROXY", "169.254.2.1")}, variables("NO_PROXY", both)},
		"everything":                  {corev1.Container{Env: variables("HTTPS_PROXY", "http://p", "NO_PROXY", "*")}, nil},
		"networks with the hub":       {corev1.Container{Env: variables("HTTPS_PROXY", "http://p", "NO_PROXY", "169.254.0.0/16, fd00::/8")}, nil},
		"no proxy":                    {corev1.Container{Env: variables("A", "1")}, nil},
		"an empty proxy":              {corev1.Container{Env: variables("HTTPS_PROXY", "")}, nil},
		"a NO_PROXY from elsewhere":   {corev1.Container{Env: append(variables("HTTPS_PROXY", "http://p", "no_proxy", "a"), elsewhere)}, nil},
		"maybe one from elsewhere":    {corev1.Container{Env: variables("HTTPS_PROXY", "http://p"), EnvFrom: envFrom}, nil},
	} {
		for _, mediaType := range encodings {
			t.Run(name+", "+mediaType, func(t *testing.T) {
				list := func(env []corev1.EnvVar) *corev1.PodList {
					c := tt.in
					if c.Env = env; env == nil {
						c.Env = tt.in.Env
					}
					return &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{*podWith(c)}}
				}
				in := list(nil)
				in.Items[0].TypeMeta = metav1.TypeMeta{}
				got := decode(t, mediaType, readAs(t, kubelet, mediaType, in)).(*corev1.PodList).Items[0]
				want := list(tt.want).Items[0].Spec
				for kind, envs := range map[string][2][]corev1.EnvVar{
					"container":           {got.Spec.Containers[0].Env, want.Containers[0].Env},
					"init container":      {got.Spec.InitContainers[0].Env, want.InitContainers[0].Env},
					"ephemeral container": {got.Spec.EphemeralContainers[0].Env, want.EphemeralContainers[0].Env},
				} {
					if !equalVariables(envs[0], envs[1]) {
						t.Errorf("%s: got %v, want %v", kind, envs[0], envs[1])
					}
				}
				if tt.want == nil && !bytes.Equal(encode(t, mediaType, in), readAs(t, kubelet, mediaType, in)) {
					t.Error("it is not what it was byte for byte")
				}
			})
		}
	}
}

func equalVariables(a, b []corev1.EnvVar) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Name != b[i].Name || a[i].Value != b[i].Value || (a[i].ValueFrom == nil) != (b[i].ValueFrom == nil) {
			return false
		}
	}
	return true
}

// An older kubelet would start the containers of all pods anew.
func TestOnlyAKubeletThatKeepsItsContainersReadsChangedPods(t *testing.T) {
	pod := podWith(corev1.Container{Env: variables("HTTPS_PROXY", "http://p")})
	for userAgent, changed := range map[string]bool{
		kubelet: true, "kubelet/v1.37.2 (linux/arm64) kubernetes/abc": true, "kubelet/v2.0.0": true, "kubelet/v1.31.0-rc.1+vendor": true,
		"kubelet/v1.30.14 (linux/amd64) kubernetes/abc": false, "kubelet/$Format": false, "edgehub/v1.37.0": false, "kubectl/v1.37.2": false, "": false,
		"k3s/v1.32.5+k3s1 (linux/amd64) kubernetes/8e8f2a4": true, "kubelite/v1.31.2 (linux/amd64) kubernetes/890a139": true,
		"k3s/v1.30.4+k3s1 (linux/amd64) kubernetes/98262b5": false, "kubelite/v1.26.5 (linux/amd64) kubernetes/890a139": false, "k3s/unknown": false, "k3s": false,
	} {
		got := readAs(t, userAgent, runtime.ContentTypeProtobuf, pod)
		if bytes.Contains(got, []byte("169.254.2.1")) != changed {
			t.Errorf("%q: changed %v, want %v", userAgent, !changed, changed)
		}
	}
}

func TestWhoUsesAProxyForTheHub(t *testing.T) {
	for name, tt := range map[string]struct {
		variables map[string]string
		want      bool
	}{
		"a proxy":                             {map[string]string{"HTTPS_PROXY": "p"}, true},
		"in small letters":                    {map[string]string{"https_proxy": "p", "no_proxy": "10.96.0.1"}, true},
		"a proxy for all":                     {map[string]string{"ALL_PROXY": "p"}, true},
		"not for TLS":                         {map[string]string{"HTTP_PROXY": "p"}, false},
		"none":                                {map[string]string{"NO_PROXY": "a"}, false},
		"the hub goes without it":             {map[string]string{"HTTPS_PROXY": "p", "NO_PROXY": "a, 169.254.2.1"}, false},
		"so does its network":                 {map[string]string{"HTTPS_PROXY": "p", "no_proxy": "169.254.0.0/16"}, false},
		"capitals come first":                 {map[string]string{"HTTPS_PROXY": "p", "NO_PROXY": "a", "no_proxy": "*"}, true},
		"empty ones do not":                   {map[string]string{"HTTPS_PROXY": "p", "NO_PROXY": "", "no_proxy": "*"}, false},
		"a longer address is another's alone": {map[string]string{"HTTPS_PROXY": "p", "NO_PROXY": "169.254.2.10"}, true},
		"with its port":                       {map[string]string{"HTTPS_PROXY": "p", "NO_PROXY": "a, 169.254.2.1:10268"}, false},
		"with another":                        {map[string]string{"HTTPS_PROXY": "p", "NO_PROXY": "169.254.2.1:443"}, true},
	} {
		if got := transform.UsesProxy(tt.variables, netip.MustParseAddrPort("169.254.2.1:10268")); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
		config := httpproxy.Config{HTTPSProxy: tt.variables["HTTPS_PROXY"], NoProxy: tt.variables["NO_PROXY"]}
		if proxy, err := config.ProxyFunc()(&url.URL{Scheme: "https", Host: "169.254.2.1:10268"}); config.HTTPSProxy != "" && config.NoProxy != "" && (err != nil || (proxy != nil) != tt.want) {
			t.Errorf("%s: Go's programs use the proxy %v, %v", name, proxy, err)
		}
	}
}
