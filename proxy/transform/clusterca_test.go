package transform_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
)

var clusterCA, otherCA, leaf = newCertificate(true), newCertificate(true), newCertificate(false)

// newCertificate returns a certificate in PEM.
func newCertificate(isCA bool) string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: isCA, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func secret(data map[string]string) *corev1.Secret {
	s := &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "s", ResourceVersion: "9"}, Data: map[string][]byte{}}
	for k, v := range data {
		s.Data[k] = []byte(v)
	}
	return s
}

func TestEachCopyOfTheClustersCAIsFollowedByTheHubs(t *testing.T) {
	reencoded := "# of the cluster\r\n" + string(bytes.ReplaceAll([]byte(clusterCA), []byte("\n"), []byte("\r\n")))
	const key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
	for name, tt := range map[string]struct {
		data map[string]string
		want map[string]string // what differs
	}{
		"a token's Secret":           {map[string]string{"ca.crt": clusterCA, "token": "t"}, map[string]string{"ca.crt": clusterCA + hubCA}},
		"another key":                {map[string]string{"root.pem": clusterCA}, map[string]string{"root.pem": clusterCA + hubCA}},
		"the same CA, other bytes":   {map[string]string{"ca.crt": reencoded}, map[string]string{"ca.crt": reencoded + hubCA}},
		"among other CAs":            {map[string]string{"ca.crt": otherCA + clusterCA}, map[string]string{"ca.crt": otherCA + clusterCA + hubCA}},
		"without its last newline":   {map[string]string{"ca.crt": clusterCA[:len(clusterCA)-1]}, map[string]string{"ca.crt": clusterCA + hubCA}},
		"another CA":                 {map[string]string{"ca.crt": otherCA}, nil},
		"a server's chain":           {map[string]string{"tls.crt": leaf + clusterCA}, nil},
		"a CA with its key":          {map[string]string{"tls.crt": clusterCA, "tls.key": key}, nil},
		"a certificate, key and CA":  {map[string]string{"ca.crt": clusterCA, "tls.crt": leaf, "tls.key": key}, nil},
		"a certificate that is none": {map[string]string{"ca.crt": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"}, nil},
		"no certificate":             {map[string]string{"password": "\x00\xff"}, nil},
		"nothing":                    {nil, nil},
	} {
		want := map[string]string{}
		for k, v := range tt.data {
			want[k] = v
		}
		for k, v := range tt.want {
			want[k] = v
		}
		for _, mediaType := range encodings {
			for resource, objects := range map[string][2]runtime.Object{
				"secrets":    {secret(tt.data), secret(want)},
				"configmaps": {configMap("a", "c", tt.data), configMap("a", "c", want)},
			} {
				t.Run(name+", "+resource+", "+mediaType, func(t *testing.T) {
					got := readAll(t, read(t, request.RequestInfo{Verb: "get", Resource: resource}, true, mediaType, encode(t, mediaType, objects[0])))
					if wanted := encode(t, mediaType, objects[1]); !bytes.Equal(normal(got), normal(wanted)) {
						t.Errorf("GET: got\n%q\nwant\n%q", got, wanted)
					}
					res := read(t, request.RequestInfo{Verb: "watch", Resource: resource}, true, mediaType+";stream=watch", encodeEvent(t, mediaType, watch.Added, objects[0]))
					if got, wanted := readAll(t, res), encodeEvent(t, mediaType, watch.Added, objects[1]); !bytes.Equal(normal(got), normal(wanted)) {
						t.Errorf("watch: got\n%q\nwant\n%q", got, wanted)
					}
				})
			}
		}
	}
}
