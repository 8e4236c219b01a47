package hub

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/edgehub-io/edgehub/cache/transform"
	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/hub/nodeca"
	"github.com/edgehub-io/edgehub/proxy/authn"
)

const (
	// caCheckInterval is how often the CA's file is read, which `edgehub rotate-ca` replaces.
	caCheckInterval = 5 * time.Second
	// caMaxAge is when the CA is rotated. It does not expire, but whoever has stolen its key
	// deceives no pod that started after a rotation.
	caMaxAge = 365 * 24 * time.Hour
	// serviceInterval is how often the Service of the apiserver is read, whose addresses the
	// hub's certificate names. They change when a cluster is set up anew.
	serviceInterval = time.Hour
)

// podAccess is how the node's pods find and trust the hub.
type podAccess struct {
	config *config.Config
	log    *slog.Logger
	issued atomic.Pointer[issued]
}

// issued is the CA in use, with a certificate of it.
type issued struct {
	ca      []byte // PEM
	created time.Time
	cert    *tls.Certificate
}

// openPodAccess reads or creates the node's CA under --root-dir.
func openPodAccess(c *config.Config, log *slog.Logger) (*podAccess, error) {
	p := &podAccess{config: c, log: log}
	return p, p.open(nil)
}

// open issues a certificate that names the hub's addresses for pods, and more, and replaces the
// CA if that may not sign for one of them.
func (p *podAccess) open(more []net.IP) error {
	names := nodeca.Names{Addresses: more, DNS: []string{
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", p.config.NodeName,
	}}
	for _, address := range p.config.PodAddresses {
		names.Addresses = append(names.Addresses, net.IP(address.AsSlice()))
	}
	ca, err := nodeca.Open(p.config.PodCAFile(), names)
	if err != nil {
		return err
	}
	now := &issued{}
	if now.created, err = ca.Created(); err != nil {
		return err
	}
	if now.ca, err = ca.Certificate(); err != nil {
		return err
	}
	if before := p.issued.Load(); before != nil && bytes.Equal(before.ca, now.ca) {
		return nil
	}
	// If the CA is replaced in between, the next check issues a certificate again.
	if now.cert, err = ca.Issue(); err != nil {
		return err
	}
	p.issued.Store(now)
	return nil
}

// run follows changes of the CA, and makes those that are due, until ctx ends. kept answers
// requests with the node's identity, with what the apiserver sent.
func (p *podAccess) run(ctx context.Context, kept http.RoundTripper) {
	if p == nil {
		return
	}
	ticker := time.NewTicker(caCheckInterval)
	defer ticker.Stop()
	var service []net.IP
	var serviceRead time.Time
	for failing := false; ; {
		if service == nil || time.Since(serviceRead) > serviceInterval {
			if read, err := readServiceIPs(ctx, kept); err == nil {
				service, serviceRead = read, time.Now()
			} else if ctx.Err() == nil {
				p.log.Debug("the Service of the apiserver cannot be read; the hub's certificate names the addresses of before", "err", err)
			}
		}
		err := p.keep(service)
		if err != nil && !failing {
			p.log.Error("the certificate for pods cannot be renewed; the one in use stays", "err", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// keep rotates the CA if it is old, and uses the CA that there is.
func (p *podAccess) keep(service []net.IP) error {
	if time.Since(p.issued.Load().created) > caMaxAge {
		ca, err := nodeca.Load(p.config.PodCAFile())
		if err == nil {
			err = ca.Rotate()
		}
		if err != nil {
			return err
		}
	}
	before := p.issued.Load()
	err := p.open(service)
	if now := p.issued.Load(); now != before {
		p.log.Info("the CA that pods verify the hub with was replaced; pods that trust the one before trust it, too", "file", p.config.PodCAFile())
	}
	return err
}

// readServiceIPs returns the addresses of the Service default/kubernetes.
func readServiceIPs(ctx context.Context, kept http.RoundTripper) ([]net.IP, error) {
	ctx, cancel := context.WithTimeout(authn.AsNode(ctx), caCheckInterval)
	defer cancel()
	const path = "/api/v1/namespaces/default/services/kubernetes"
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{
		IsResourceRequest: true, Path: path, Verb: "get", APIPrefix: "api", APIVersion: "v1",
		Namespace: "default", Resource: "services", Name: "kubernetes", Parts: []string{"services", "kubernetes"},
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://edgehub"+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	res, err := kept.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", path, res.Status)
	}
	const most = 1 << 20
	var service corev1.Service
	if err := json.NewDecoder(io.LimitReader(res.Body, most)).Decode(&service); err != nil {
		return nil, fmt.Errorf("GET %s: %w", path, err)
	}
	ips := []net.IP{}
	for _, text := range append(service.Spec.ClusterIPs, service.Spec.ClusterIP) {
		if ip := net.ParseIP(text); ip != nil && !slices.ContainsFunc(ips, ip.Equal) {
			ips = append(ips, ip)
		}
	}
	return ips, nil
}

// transform returns what answers requests of the node's clients.
func (p *podAccess) transform(answers http.RoundTripper, r prometheus.Registerer, log *slog.Logger) http.RoundTripper {
	port := uint16(p.config.ProxySecurePort)
	var active []transform.Transform
	for _, t := range []transform.Transform{
		transform.NewAPIServerService(p.config.PodAddresses, port),
		transform.NewRootCA(func() []byte { return p.issued.Load().ca }),
		transform.NewKubeProxy(fmt.Sprintf("https://%s", p.config.PodServers()[0])),
	} {
		if slices.Contains(p.config.Transforms, t.Name) {
			active = append(active, t)
		}
	}
	return transform.New(answers, transform.Options{
		IsNode:     func(ctx context.Context) bool { return authn.IdentityOf(ctx) == authn.Node },
		Transforms: active, Registerer: r, Logger: log,
	})
}

// serverConfig is that of the ports at the addresses for pods.
func (p *podAccess) serverConfig() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.issued.Load().cert, nil },
		ClientAuth:     tls.RequestClientCert,
	}
}
