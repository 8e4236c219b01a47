package hub

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// serveCluster answers with the two objects by which a pod finds and trusts its apiserver.
func serveCluster(w http.ResponseWriter, r *http.Request) {
	var o any
	switch r.URL.Path {
	case "/api/v1/namespaces/default/services/kubernetes":
		o = corev1.Service{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes", UID: "u1", ResourceVersion: "5"},
			Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.1", Ports: []corev1.ServicePort{{Port: 443}}},
		}
	case "/api/v1/namespaces/a/configmaps/kube-root-ca.crt":
		o = corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "kube-root-ca.crt", UID: "u2", ResourceVersion: "6"},
			Data:       map[string]string{"ca.crt": "the cluster's CA\n"},
		}
	default:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(o)
}

// read gets an object as a client of one of the hub's ports.
func readObject(t *testing.T, client *http.Client, url, token string, into any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(body, into); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s: %v: %s", url, res.Status, err, body)
	}
}

func TestAPodFindsAndTrustsTheHubByWhatKubeletReads(t *testing.T) {
	n := newNode(t, serveCluster)
	n.config.PodAddresses = []netip.Addr{netip.MustParseAddr("127.0.0.2")}
	n.start(t)
	kubelet := "http://" + n.config.ProxyAddress

	var service corev1.Service
	readObject(t, http.DefaultClient, kubelet+"/api/v1/namespaces/default/services/kubernetes", "", &service)
	if service.Spec.ClusterIP != "127.0.0.2" || int(service.Spec.Ports[0].Port) != n.config.ProxySecurePort {
		t.Errorf("pods get the address %s:%d", service.Spec.ClusterIP, service.Spec.Ports[0].Port)
	}
	var cas corev1.ConfigMap
	readObject(t, http.DefaultClient, kubelet+"/api/v1/namespaces/a/configmaps/kube-root-ca.crt", "", &cas)
	if !strings.HasPrefix(cas.Data["ca.crt"], "the cluster's CA\n") {
		t.Errorf("the cluster's CA is gone: %s", cas.Data["ca.crt"])
	}

	// The pod sees the Service as it is, with its own token.
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(cas.Data["ca.crt"]))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	pod := &http.Client{Transport: transport}
	readObject(t, pod, "https://"+n.config.PodServers()[0]+"/api/v1/namespaces/default/services/kubernetes", "pod-token", &service)
	if service.Spec.ClusterIP != "10.96.0.1" || service.Spec.Ports[0].Port != 443 {
		t.Errorf("a pod reads %s:%d", service.Spec.ClusterIP, service.Spec.Ports[0].Port)
	}
	if state := n.debugCache(t); !strings.Contains(state, `"transforms"`) {
		t.Errorf("GET /debug/cache: %s", state)
	}
}

// While the cloud is away, the cluster IP of the apiservers leads to the hub.
func TestTheAPIServersEndpointsAreTheHubWithoutTheCloud(t *testing.T) {
	const path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"
	port := int32(6443)
	slice := discoveryv1.EndpointSlice{
		TypeMeta:    metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: "kubernetes", UID: "u1", ResourceVersion: "50"},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}},
		Ports:       []discoveryv1.EndpointPort{{Port: &port}},
	}
	n := newNode(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != path {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(slice)
	})
	n.config.PodAddresses = []netip.Addr{netip.MustParseAddr("127.0.0.2")}
	n.start(t)
	read := func() string {
		var got discoveryv1.EndpointSlice
		readObject(t, http.DefaultClient, "http://"+n.config.ProxyAddress+path, "", &got)
		return fmt.Sprintf("%s:%d", got.Endpoints[0].Addresses[0], *got.Ports[0].Port)
	}
	if got := read(); got != "192.0.2.1:6443" {
		t.Errorf("with the cloud it has %s", got)
	}
	n.api.CloseClientConnections()
	n.api.Close()
	got, want := "", n.config.PodServers()[0]
	for deadline := time.Now().Add(time.Minute); got != want && time.Now().Before(deadline); {
		got = read()
	}
	if got != want {
		t.Errorf("without the cloud it has %s, want %s", got, want)
	}
}

func TestATransformCanBeTurnedOff(t *testing.T) {
	n := newNode(t, serveCluster)
	n.config.PodAddresses = []netip.Addr{netip.MustParseAddr("127.0.0.2")}
	n.config.Transforms = []string{"root-ca"}
	n.start(t)
	var service corev1.Service
	readObject(t, http.DefaultClient, "http://"+n.config.ProxyAddress+"/api/v1/namespaces/default/services/kubernetes", "", &service)
	if service.Spec.ClusterIP != "10.96.0.1" {
		t.Errorf("it was transformed: %s", service.Spec.ClusterIP)
	}
}

func (n *node) debugCache(t *testing.T) string {
	t.Helper()
	_, body := fetch(t, http.DefaultClient, "http://"+n.config.ServeAddress+"/debug/cache")
	return body
}
