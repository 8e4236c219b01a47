package enroll

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
)

const (
	// answerTimeout bounds one small request to an apiserver.
	answerTimeout = 15 * time.Second
	// approvalTimeout is how long one attempt waits for a request to be approved and
	// signed, which takes a controller milliseconds. Where people approve, the next
	// attempt finds the same request.
	approvalTimeout = time.Minute
	// firstPoll and lastPoll are the first and the longest interval of polling for that.
	firstPoll, lastPoll = 100 * time.Millisecond, 5 * time.Second
)

// resource is the resource of CertificateSigningRequests.
const resource = "certificatesigningrequests"

// requests is a client for CertificateSigningRequests.
type requests struct{ rest.Interface }

// newRequests returns a client. It does not change config.
func newRequests(config *rest.Config) (*requests, error) {
	scheme := runtime.NewScheme() // the clientset's scheme contains every API group
	if err := certificatesv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	own := *config
	own.APIPath, own.GroupVersion = "/apis", &certificatesv1.SchemeGroupVersion
	own.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	own.Timeout = answerTimeout
	client, err := rest.RESTClientFor(&own)
	return &requests{client}, err
}

// errGivenUp is returned if no certificate will be issued for this key.
var errGivenUp = errors.New("another one will be asked for")

// certify requests a certificate for a node and key, and returns it in PEM. fresh is false if it
// was requested before.
func (r *requests) certify(ctx context.Context, node string, key *ecdsa.PrivateKey) (certPEM []byte, fresh bool, err error) {
	csr, err := newRequest(node, key)
	if err != nil {
		return nil, false, err
	}
	err = r.Post().Resource(resource).Body(csr).MaxRetries(0).Do(ctx).Error()
	if fresh = err == nil; !fresh && !apierrors.IsAlreadyExists(err) {
		return nil, false, err
	}
	certPEM, err = r.await(ctx, csr)
	return certPEM, fresh, err
}

// newRequest returns a request whose name derives from the key, so that a second one finds the first.
func newRequest(node string, key *ecdsa.PrivateKey) (*certificatesv1.CertificateSigningRequest, error) {
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	csr, err := cert.MakeCSR(key, &pkix.Name{CommonName: userOf(node), Organization: []string{"system:nodes"}}, nil, nil)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(append([]byte(node+"\x00"), public...))
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "edgehub-csr-" + hex.EncodeToString(sum[:16])},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    csr,
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}, nil
}

func userOf(node string) string { return "system:node:" + node }

// await waits until a request is approved and signed, and returns the certificate.
func (r *requests) await(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) ([]byte, error) {
	until := time.Now().Add(approvalTimeout)
	for wait := firstPoll; ; wait = min(2*wait, lastPoll) {
		now := &certificatesv1.CertificateSigningRequest{}
		if err := r.Get().Resource(resource).Name(csr.Name).MaxRetries(0).Do(ctx).Into(now); err != nil {
			return nil, err
		}
		if certPEM, err := issued(now); certPEM != nil || err != nil {
			return certPEM, err
		}
		if time.Now().After(until) {
			return nil, fmt.Errorf("certificate signing request %s waits for approval: `kubectl certificate approve %[1]s`, or bind system:certificates.k8s.io:certificatesigningrequests:nodeclient", csr.Name)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(wait):
		}
	}
}

// issued returns the certificate, or nil if it is still to come.
func issued(csr *certificatesv1.CertificateSigningRequest) ([]byte, error) {
	for _, c := range csr.Status.Conditions {
		if c.Status == corev1.ConditionFalse {
			continue
		}
		switch c.Type {
		case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			return nil, fmt.Errorf("certificate signing request %s was answered %s: %s %s; %w", csr.Name, c.Type, c.Reason, c.Message, errGivenUp)
		}
	}
	return csr.Status.Certificate, nil
}

// check parses a certificate, and returns an error unless it is for the node and key.
func check(certPEM []byte, node string, key *ecdsa.PrivateKey) (*x509.Certificate, error) {
	block, _ := pem.Decode(certPEM)
	if block == nil {
		return nil, fmt.Errorf("what was issued holds no PEM block; %w", errGivenUp)
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	switch {
	case err != nil:
		return nil, fmt.Errorf("what was issued is no certificate: %w; %w", err, errGivenUp)
	case !key.PublicKey.Equal(leaf.PublicKey) || leaf.Subject.CommonName != userOf(node):
		return nil, fmt.Errorf("the certificate that was issued is for %q, or for another key; %w", leaf.Subject.CommonName, errGivenUp)
	}
	return leaf, nil
}
