package hub

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/hub/nodeca"
	"github.com/edgehub-io/edgehub/hub/servertls"
	"github.com/edgehub-io/edgehub/proxy/transform"
)

const (
	// caCheckInterval is how often the CA's file is read, which `edgehub rotate-ca` replaces.
	caCheckInterval = 5 * time.Second
	// caMaxAge is when the CA is rotated. It does not expire, but whoever has stolen its key
	// deceives no pod that started after a rotation.
	caMaxAge = 365 * 24 * time.Hour
)

// podAccess is how the node's pods find and trust the hub.
type podAccess struct {
	config *config.Config
	log    *slog.Logger
	issued atomic.Pointer[issued]
}

// issued is the CA in use, with certificates of it.
type issued struct {
	ca      []byte // PEM
	created time.Time
	certs   *nodeca.Certificates
}

// openPodAccess reads or creates the node's CA under --root-dir. It returns nil if pods do not use the hub.
func openPodAccess(c *config.Config, log *slog.Logger) (*podAccess, error) {
	if len(c.PodAddresses) == 0 {
		return nil, nil //nolint:nilnil // run does nothing then
	}
	p := &podAccess{config: c, log: log}
	if err := p.open(); err != nil {
		return nil, err
	}
	return p, nil
}

// open uses the CA that there is. It issues certificates if that is another one than before.
func (p *podAccess) open() error {
	ca, err := nodeca.Open(p.config.PodCAFile(), nodeca.NamesOf(p.config.NodeName, p.config.PodAddresses, p.config.APIServerNames))
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
	// If the CA is replaced in between, the next check issues certificates again.
	if now.certs, err = ca.Issue(); err != nil {
		return err
	}
	p.issued.Store(now)
	return nil
}

// run follows changes of the CA, and makes those that are due, until ctx ends.
func (p *podAccess) run(ctx context.Context) {
	if p == nil {
		return
	}
	ticker := time.NewTicker(caCheckInterval)
	defer ticker.Stop()
	for failing := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := p.keep()
		if err != nil && !failing {
			p.log.Error("the certificate for pods cannot be renewed; the one in use stays", "err", err)
		}
		failing = err != nil
	}
}

// keep rotates the CA if it is old, and uses the CA that there is.
func (p *podAccess) keep() error {
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
	err := p.open()
	if now := p.issued.Load(); now != before {
		p.log.Info("the CA that pods verify the hub with was replaced; pods that trust the one before trust it, too", "file", p.config.PodCAFile())
	}
	return err
}

// transforms are those by which the node's pods get to use the hub. clusterCAs returns the CAs by which the
// hub verifies the apiserver, in PEM.
func (p *podAccess) transforms(clusterCAs func() []byte) []transform.Transform {
	return slices.Concat(
		transform.NewAPIServerService(p.config.PodAddresses, uint16(p.config.ProxySecurePort)),
		transform.NewRootCA(func() []byte { return p.issued.Load().ca }, clusterCAs),
		[]transform.Transform{transform.NewKubeProxy(fmt.Sprintf("https://%s", p.config.PodServers()[0]))},
	)
}

// serverConfig is that of the ports at the addresses for pods. It requests no client certificates:
// nobody gets the node's identity there, and pods have tokens.
func (p *podAccess) serverConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetCertificate: servertls.BySNI(
			func() *tls.Certificate { return p.issued.Load().certs.Usual },
			func(name string) *tls.Certificate { return p.issued.Load().certs.Named(name) },
		),
	}
}
