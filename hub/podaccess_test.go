package hub

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/hub/nodeca"
	"github.com/edgehub-io/edgehub/ota/api"
)

var podAddress = []netip.Addr{netip.MustParseAddr("127.0.0.2")} //nolint:gochecknoglobals // a constant

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

// readObject gets an object as a client of one of the hub's ports.
func readObject(t *testing.T, client *http.Client, url, token string, into any) {
	t.Helper()
	var headers []string
	if token != "" {
		headers = []string{"Authorization", "Bearer " + token}
	}
	code, body := sendTo(t, client, http.MethodGet, url, "", headers...)
	if err := json.Unmarshal([]byte(body), into); err != nil || code != http.StatusOK {
		t.Fatalf("%s: %d: %v: %s", url, code, err, body)
	}
}

func TestAPodFindsAndTrustsTheHubByWhatKubeletReads(t *testing.T) {
	var n *node
	n = newNode(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/namespaces/a/secrets/token" {
			serveCluster(w, r)
			return
		}
		ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: n.api.Certificate().Raw})
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(corev1.Secret{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "token", UID: "u3", ResourceVersion: "7"},
			Data:       map[string][]byte{"ca.crt": ca},
		})
	})
	n.config.PodAddresses = podAddress
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

	var token corev1.Secret
	readObject(t, http.DefaultClient, kubelet+"/api/v1/namespaces/a/secrets/token", "", &token)
	if copied := string(token.Data["ca.crt"]); !strings.HasSuffix(copied, strings.TrimPrefix(cas.Data["ca.crt"], "the cluster's CA\n")) {
		t.Errorf("the CA in a Secret is %s", copied)
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
	n.config.PodAddresses = podAddress
	h, _ := n.start(t)
	read := func() string {
		var got discoveryv1.EndpointSlice
		readObject(t, http.DefaultClient, "http://"+n.config.ProxyAddress+path, "", &got)
		return fmt.Sprintf("%s:%d", got.Endpoints[0].Addresses[0], *got.Ports[0].Port)
	}
	if got := read(); got != "192.0.2.1:6443" {
		t.Errorf("with the cloud it has %s", got)
	}
	n.loseCloud(t, h)
	until(t, "it has the hub's address", func() bool { return read() == n.config.PodServers()[0] })
}

func (n *node) debugCache(t *testing.T) string {
	t.Helper()
	_, body := n.ask(t, http.MethodGet, "/debug/cache", "")
	return body
}

// podClient returns a client that trusts what kubelet mounts into pods now, and no other CA.
func (n *node) podClient(t *testing.T) *http.Client {
	t.Helper()
	var cas corev1.ConfigMap
	readObject(t, http.DefaultClient, "http://"+n.config.ProxyAddress+"/api/v1/namespaces/a/configmaps/kube-root-ca.crt", "", &cas)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(cas.Data["ca.crt"]))
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	return &http.Client{Transport: transport}
}

// serves returns the certificates that the hub sends to pods that ask for a name.
func (n *node) serves(t *testing.T, name string) []*x509.Certificate {
	t.Helper()
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, ServerName: name}} //nolint:gosec // the certificate is what is looked at
	conn, err := dialer.DialContext(t.Context(), "tcp", n.config.PodServers()[0])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates
}

func TestTheCertificateForPodsNamesTheAPIServer(t *testing.T) {
	n := newNode(t, serveCluster)
	n.config.PodAddresses = podAddress
	// As edgehub install does, which knows the address of the Service.
	if _, err := nodeca.Open(n.config.PodCAFile(), nodeca.NamesOf("n1", n.config.PodAddresses, nil), net.IPv4(10, 96, 0, 1)); err != nil {
		t.Fatal(err)
	}
	const own = "kubernetes.default.svc.k8s.example.com"
	n.config.APIServerNames = []string{own}
	n.start(t)
	leaf := n.serves(t, "")[0]
	for _, name := range []string{"10.96.0.1", "127.0.0.2", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "n1"} {
		if err := leaf.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"registry.example.com", own} {
		if err := leaf.VerifyHostname(name); err == nil {
			t.Errorf("it is for %s, too", name)
		}
	}
	if leaf := n.serves(t, own)[0]; !slices.Equal(leaf.DNSNames, []string{own}) {
		t.Errorf("the certificate of %s is for %q", own, leaf.DNSNames)
	}
	transport := n.podClient(t).Transport.(*http.Transport)
	transport.TLSClientConfig.ServerName = own
	var service corev1.Service
	readObject(t, &http.Client{Transport: transport}, "https://"+n.config.PodServers()[0]+"/api/v1/namespaces/default/services/kubernetes", "pod-token", &service)
}

func TestPodsMayUseBothFamilies(t *testing.T) {
	n := newNode(t, serveCluster)
	n.config.PodAddresses = []netip.Addr{netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("::1")}
	n.start(t)
	pod := n.podClient(t)
	for _, server := range n.config.PodServers() {
		var service corev1.Service
		readObject(t, pod, "https://"+server+"/api/v1/namespaces/default/services/kubernetes", "pod-token", &service)
	}
}

func TestTheCAForPodsIsFollowedAndRotated(t *testing.T) {
	for name, tt := range map[string]struct {
		age     time.Duration
		byHand  bool // by edgehub rotate-ca, which is another process
		rotated bool
	}{
		"it is a year old":                         {caMaxAge + time.Hour, false, true},
		"it is younger":                            {caMaxAge - time.Hour, false, false},
		"it is rotated by hand":                    {time.Hour, true, true},
		"the clock was set back since it was made": {-10 * caMaxAge, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &config.Config{Options: config.Options{RootDir: t.TempDir(), NodeName: "n1"}, PodAddresses: podAddress}
				p, err := openPodAccess(c, slog.New(slog.DiscardHandler))
				if err != nil {
					t.Fatal(err)
				}
				before, made := p.issued.Load(), time.Now().Add(-tt.age)
				if err := os.Chtimes(c.PodCAFile(), made, made); err != nil {
					t.Fatal(err)
				}
				p.issued.Store(&issued{ca: before.ca, created: made, certs: before.certs})
				if tt.byHand {
					ca, err := nodeca.Load(c.PodCAFile())
					if err == nil {
						err = ca.Rotate()
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), caCheckInterval+time.Second)
				defer cancel()
				p.run(ctx)
				now := p.issued.Load()
				if otherCA, other := !bytes.Equal(now.ca, before.ca), !bytes.Equal(now.certs.Usual.Certificate[0], before.certs.Usual.Certificate[0]); otherCA != tt.rotated || other != tt.rotated {
					t.Errorf("there is another CA: %t, and another certificate: %t; want %t", otherCA, other, tt.rotated)
				}
			})
		})
	}
}

func TestTheStateOfPodAccessIsShown(t *testing.T) {
	n := newNode(t, serveCluster)
	n.config.PodAddresses = podAddress
	n.start(t)
	var state struct {
		PodAccess *api.PodAccess `json:"podAccess"`
	}
	if err := json.Unmarshal([]byte(n.debugCache(t)), &state); err != nil {
		t.Fatal(err)
	}
	p := state.PodAccess
	if p == nil || len(p.Addresses) != 1 || p.Addresses[0] != n.config.PodServers()[0] || time.Since(p.CACreated) > time.Hour ||
		p.Pods != nil || !strings.Contains(p.Unknown, "--container-runtime-endpoint") {
		t.Errorf("got %+v", p)
	}
}

// TestPodAddressesLendNobodyTheNodesIdentity is as a program of the node's root, which gets that
// identity on the plain port.
func TestPodAddressesLendNobodyTheNodesIdentity(t *testing.T) {
	const path, nodes = "/api/v1/namespaces/default/services/kubernetes", "Bearer first-token"
	var sentAsNode atomic.Int64
	n := newNode(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == path && strings.Contains(strings.Join(r.Header.Values("Authorization"), ","), nodes) {
			sentAsNode.Add(1)
		}
		serveCluster(w, r)
	})
	n.config.PodAddresses = podAddress
	n.start(t)
	pod := n.podClient(t)
	for name, tt := range map[string]struct {
		header  http.Header
		refused bool // by the hub; otherwise the apiserver decides about the credentials as they are
	}{
		"no credentials":            {http.Header{}, true},
		"a front proxy's headers":   {http.Header{"X-Remote-User": {"system:node:n1"}, "X-Remote-Group": {"system:nodes"}}, true},
		"impersonation":             {http.Header{"Impersonate-User": {"system:node:n1"}, "Impersonate-Group": {"system:nodes"}}, true},
		"an address of loopback":    {http.Header{"X-Forwarded-For": {"127.0.0.1"}, "Forwarded": {"for=127.0.0.1"}}, true},
		"an empty token":            {http.Header{"Authorization": {"Bearer "}}, false},
		"a password":                {http.Header{"Authorization": {"Basic bjE6bjE="}}, false},
		"credentials that are lost": {http.Header{"Authorization": {"Bearer x"}, "Connection": {"Authorization"}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+n.config.PodServers()[0]+path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			req.Header = tt.header
			res, err := pod.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if refused := res.StatusCode >= http.StatusBadRequest; refused != tt.refused {
				t.Errorf("it answers %s", res.Status)
			}
		})
	}
	if got := sentAsNode.Load(); got != 0 {
		t.Errorf("%d requests were sent with the node's credentials", got)
	}
	var service corev1.Service
	readObject(t, http.DefaultClient, "http://"+n.config.ProxyAddress+path, "", &service)
	if sentAsNode.Load() != 1 {
		t.Error("the node's own request was not recognized by the test")
	}
}

func TestPodsAreAskedForNoCertificate(t *testing.T) {
	n := newNode(t, serveCluster)
	n.config.PodAddresses = podAddress
	n.start(t)
	for address, want := range map[string]bool{n.config.PodServers()[0]: false, n.config.SecureAddress: true} {
		asked := false
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
			InsecureSkipVerify: true, //nolint:gosec // the client's certificate is what is tested
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				asked = true
				return &tls.Certificate{}, nil
			},
		}}}
		if code, body := fetch(t, client, "https://"+address+"/api"); code != http.StatusUnauthorized || asked != want {
			t.Errorf("%s: asked for a certificate: %t, want %t; %d %s", address, asked, want, code, body)
		}
	}
}

func TestPodsCannotTakeTheConnectionsOfKubelet(t *testing.T) {
	n := newNode(t, serveCluster)
	n.config.PodAddresses = []netip.Addr{netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("::1")}
	n.config.MaxConnections = config.MinConnections
	n.start(t)
	dials := 0
	dial := func() {
		var dialer net.Dialer
		conn, err := dialer.DialContext(t.Context(), "tcp", n.config.PodServers()[dials%2])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		dials++
	}
	for range 4 * n.config.MaxConnections {
		dial()
	}
	share := (n.config.MaxConnections/2 + 2) / 3 // of one peer, this program's user
	want := fmt.Sprintf("edgehub_connections{port=\"dummy-if-ip\"} %d\n", share)
	until(t, "a peer has its share of connections at two addresses, "+want, func() bool {
		dial() // what counted for those that are not found is free again when they are
		_, metrics := n.ask(t, http.MethodGet, "/metrics", "")
		return strings.Contains(metrics, want)
	})
	var service corev1.Service
	readObject(t, http.DefaultClient, "http://"+n.config.ProxyAddress+"/api/v1/namespaces/default/services/kubernetes", "", &service)
}

// A connection may send as much as it likes once its first request has arrived.
func TestALargeBodyMayBeAConnectionsFirst(t *testing.T) {
	n := newNode(t, func(w http.ResponseWriter, r *http.Request) {
		size, _ := io.Copy(io.Discard, r.Body) // what has come
		fmt.Fprint(w, size)
	})
	n.config.PodAddresses = podAddress
	n.start(t)
	const size = 1 << 20
	for _, url := range []string{"http://" + n.config.ProxyAddress, "https://" + n.config.SecureAddress, "https://" + n.config.PodServers()[0]} {
		for _, http2 := range []bool{false, true} {
			transport := &http.Transport{
				DisableKeepAlives: true, ForceAttemptHTTP2: http2,
				TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // whose certificate it is does not matter
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/version", bytes.NewReader(make([]byte, size)))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer x")
			res, err := transport.RoundTrip(req)
			if err != nil {
				t.Fatalf("%s, HTTP/2 %t: %v", url, http2, err)
			}
			body, err := io.ReadAll(res.Body)
			res.Body.Close()
			if string(body) != fmt.Sprint(size) || err != nil {
				t.Errorf("%s, HTTP/2 %t: %s %s %v", url, http2, res.Status, body, err)
			}
		}
	}
}
