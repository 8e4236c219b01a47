package install

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"

	"github.com/edgehub-io/edgehub/cmd/edgehub/install/apiserver"
	"github.com/edgehub-io/edgehub/cmd/edgehub/install/firewall"
)

// readNetwork notes what the cluster says about the addresses of pods and of its apiserver. An upgrade
// without the cloud has what the install before it was told.
func (o *Options) readNetwork(ctx context.Context, cloud *apiserver.Client) {
	if node, err := cloud.Node(ctx, o.NodeName); err == nil {
		o.PodCIDRs = node.Spec.PodCIDRs
	}
	if ips, err := cloud.APIServerIPs(ctx); err == nil {
		o.ServiceIPs = nil
		for _, ip := range ips {
			o.ServiceIPs = append(o.ServiceIPs, ip.String())
		}
	}
}

// ledServers are those of the hub's addresses for pods that pods are led to: each takes the place of a
// cluster IP of its family.
func (p *plan) ledServers() []netip.AddrPort {
	var led []netip.AddrPort
	for _, address := range p.config.PodAddresses {
		sameFamily := func(ip string) bool {
			cluster, err := netip.ParseAddr(ip)
			return err == nil && cluster.Is4() == address.Is4()
		}
		if len(p.options.ServiceIPs) == 0 || slices.ContainsFunc(p.options.ServiceIPs, sameFamily) {
			led = append(led, netip.AddrPortFrom(address, uint16(p.config.ProxySecurePort))) //nolint:gosec // config has checked it
		}
	}
	return led
}

// askHub sends a request as a pod does, and returns nil if whoever proves to be the hub answers, whatever.
func askHub(ctx context.Context, conn net.Conn, roots *x509.CertPool) error {
	secured := tls.Client(conn, podTLS(roots))
	if err := secured.HandshakeContext(ctx); err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = secured.SetDeadline(deadline) // fails for a closed connection, as what follows does
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+podServerName+"/readyz", nil)
	if err == nil {
		err = req.Write(secured)
	}
	if err != nil {
		return err
	}
	res, err := http.ReadResponse(bufio.NewReader(secured), req)
	if err != nil {
		return err
	}
	return res.Body.Close()
}

// checkReach tries whether pods reach the hub. Where kubelet is yet to lead them to it, none may be led
// to an address that nobody reaches. An earlier install's pods are there already, and an upgrade makes
// it no worse.
func (p *plan) checkReach(ctx context.Context, out io.Writer) error {
	if !p.leadsPods() {
		return nil
	}
	roots, err := podRoots(p.config.PodCAFile())
	if err != nil {
		return err
	}
	ask := func(ctx context.Context, conn net.Conn) error { return askHub(ctx, conn, roots) }
	err = firewall.Reach(ctx, p.ledServers(), ask, p.options.PodCIDRs, out)
	if err != nil && !p.leadsAnew && ctx.Err() == nil {
		fmt.Fprintf(out, "note: %v\n", err)
		return nil
	}
	return err
}
