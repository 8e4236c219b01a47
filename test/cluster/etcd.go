package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"

	"github.com/edgehub-io/edgehub/test/cluster/freeport"
)

// etcd has an authority of its own, as in a real cluster: whoever holds a
// certificate of the cluster's must not be able to write around the apiserver.
type etcd struct {
	process  *Process
	url      string
	caFile   string
	certFile string // for its clients
	keyFile  string
}

func (c *Cluster) newEtcd() (*etcd, error) {
	authority, err := newAuthority(c.path("pki", "etcd"), "ca")
	if err != nil {
		return nil, err
	}
	serverCert, serverKey, err := authority.issue("server", identity{name: "etcd", hosts: []string{"127.0.0.1"}})
	if err != nil {
		return nil, err
	}
	e := &etcd{caFile: authority.certFile()}
	if e.certFile, e.keyFile, err = authority.issue("client", identity{name: "kube-apiserver"}); err != nil {
		return nil, err
	}
	clientPort, err := freeport.Take()
	if err != nil {
		return nil, err
	}
	peerPort, err := freeport.Take()
	if err != nil {
		return nil, err
	}
	e.url = "https://" + loopback(clientPort)
	peerURL := "https://" + loopback(peerPort)
	client, err := e.client()
	if err != nil {
		return nil, err
	}
	e.process = c.newProcess("etcd", func() *exec.Cmd {
		return c.components.command("etcd",
			"--name=cluster",
			"--data-dir="+c.path("etcd"),
			"--listen-client-urls="+e.url,
			"--advertise-client-urls="+e.url,
			"--listen-peer-urls="+peerURL,
			"--initial-advertise-peer-urls="+peerURL,
			"--initial-cluster=cluster="+peerURL,
			"--client-cert-auth", "--trusted-ca-file="+e.caFile, "--cert-file="+serverCert, "--key-file="+serverKey,
			"--peer-client-cert-auth", "--peer-trusted-ca-file="+e.caFile, "--peer-cert-file="+serverCert, "--peer-key-file="+serverKey,
			"--unsafe-no-fsync", // nothing here has to survive a power cut
		)
	}, func(ctx context.Context) error { return get(ctx, client, e.url+"/readyz") })
	return e, nil
}

func (e *etcd) client() (*http.Client, error) {
	pair, err := tls.LoadX509KeyPair(e.certFile, e.keyFile)
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(e.caFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots},
		DisableKeepAlives: true, // asked a few times at the start, never again
	}}, nil
}

// get returns nil when url answers 200, otherwise an error with its answer.
func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		return nil
	}
	const enough = 1 << 10
	body, _ := io.ReadAll(io.LimitReader(response.Body, enough))
	return fmt.Errorf("GET %s: %s: %s", url, response.Status, strings.TrimSpace(string(body)))
}
