package enroll

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cloud is an apiserver in memory. It can refuse users, and may or may not sign certificates, which are
// valid for life.
type cloud struct {
	key *ecdsa.PrivateKey
	ca  *x509.Certificate

	mu      sync.Mutex
	csrs    map[string]*certificatesv1.CertificateSigningRequest
	by      []string // "self" or "token" for each request that was made
	life    time.Duration
	late    time.Duration                       // its clock, against ours
	verdict certificatesv1.RequestConditionType // of requests from now on; empty: none yet
	node    string                              // in place of the one that was asked for
	refuses map[string]bool                     // "self", "token"
}

func newCloud(t *testing.T) *cloud {
	t.Helper()
	c := &cloud{
		csrs: map[string]*certificatesv1.CertificateSigningRequest{}, life: time.Hour,
		verdict: certificatesv1.CertificateApproved, refuses: map[string]bool{},
	}
	c.key = newKey(t)
	c.ca = &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().AddDate(100, 0, 0)}
	return c
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// RoundTrip handles requests without a network.
func (c *cloud) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := httptest.NewRecorder()
	c.serve(w, r)
	res := w.Result()
	res.Request = r
	return res, nil
}

func (c *cloud) serve(w http.ResponseWriter, r *http.Request) {
	by := "self"
	if r.Header.Get("Authorization") != "" {
		by = "token"
	}
	name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	kind := schema.GroupResource{Group: certificatesv1.GroupName, Resource: resource}
	switch {
	case c.refuses[by] && by == "self": // as the hub says it
		answer(w, http.StatusServiceUnavailable, apierrors.NewServiceUnavailable("edgehub: the cloud does not let this node in").Status())
	case c.refuses[by]:
		answer(w, http.StatusUnauthorized, apierrors.NewUnauthorized("Unauthorized").Status())
	case r.Method == http.MethodPost:
		csr := &certificatesv1.CertificateSigningRequest{}
		body, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(body, csr); err != nil {
			panic(err)
		}
		if c.csrs[csr.Name] != nil {
			answer(w, http.StatusConflict, apierrors.NewAlreadyExists(kind, csr.Name).Status())
			return
		}
		c.csrs[csr.Name] = csr
		c.by = append(c.by, by)
		c.judge(csr)
		answer(w, http.StatusCreated, csr)
	case c.csrs[name] == nil:
		answer(w, http.StatusNotFound, apierrors.NewNotFound(kind, name).Status())
	default:
		answer(w, http.StatusOK, c.csrs[name])
	}
}

func answer(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	switch o := object.(type) {
	case metav1.Status:
		o.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		object = o
	case *certificatesv1.CertificateSigningRequest:
		o.TypeMeta = metav1.TypeMeta{Kind: "CertificateSigningRequest", APIVersion: "certificates.k8s.io/v1"}
	}
	if err := json.NewEncoder(w).Encode(object); err != nil {
		panic(err)
	}
}

// judge sets the status of a request.
func (c *cloud) judge(csr *certificatesv1.CertificateSigningRequest) {
	if c.verdict == "" {
		return
	}
	csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: c.verdict, Status: corev1.ConditionTrue, Reason: "Test"}}
	if c.verdict != certificatesv1.CertificateApproved {
		return
	}
	block, _ := pem.Decode(csr.Spec.Request)
	asked, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil || asked.CheckSignature() != nil {
		panic(err)
	}
	subject := asked.Subject
	if c.node != "" {
		subject.CommonName = c.node
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(int64(len(c.csrs))), Subject: subject,
		NotBefore: time.Now().Add(-c.late - 5*time.Minute), NotAfter: time.Now().Add(c.life - c.late),
	}, c.ca, asked.PublicKey, c.key)
	if err != nil {
		panic(err)
	}
	csr.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// approveAll approves all requests, as an administrator does.
func (c *cloud) approveAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.verdict = certificatesv1.CertificateApproved
	for _, csr := range c.csrs {
		c.judge(csr)
	}
}

func (c *cloud) askedBy() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.by, " ")
}

func (c *cloud) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// reach is a Cloud that can always be reached.
type reach struct {
	refused chan struct{} // closed: the node is not let in
}

func (r *reach) WaitUp(ctx context.Context) error { return ctx.Err() }

func (r *reach) Lost(ctx context.Context) <-chan struct{} {
	if isNode(ctx) {
		return r.refused
	}
	return nil
}

var errNoFile = errors.New("no such file")

// setUp returns an Enrollment that does not run.
func setUp(t *testing.T, dir string, c *cloud, bootstrap func() (string, *clientcmdapi.Cluster, error)) (*Enrollment, *reach) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	s, err := Open(dir, log)
	if err != nil {
		t.Fatal(err)
	}
	way := &reach{refused: make(chan struct{})}
	if bootstrap == nil {
		bootstrap = func() (string, *clientcmdapi.Cluster, error) {
			return "token", &clientcmdapi.Cluster{Server: "https://cloud.example.com:6443"}, nil
		}
	}
	e, err := New(s, Options{
		NodeName: "n1", BootstrapFile: dir + "/bootstrap", ReadBootstrap: bootstrap,
		Hub: &rest.Config{Host: "http://edgehub", Transport: c}, Cloud: way,
		Registerer: prometheus.NewRegistry(), Logger: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	return e, way
}
