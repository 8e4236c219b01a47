package credentials

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/edgehub-io/edgehub/hub/kubeconfig"
)

// Kubelet is the node's kubelet, by its kubeconfig for the hub. It reads the file, and the certificate that
// this names, each time, since kubelet rotates that. Concurrent use is safe.
type Kubelet struct{ Kubeconfig string }

// Lapsed returns nil if a request without a client certificate may be kubelet's: if the certificate that its
// kubeconfig names has expired, or is missing, and the connection is for the secret tls-server-name there.
//
// Kubelet's probes and lifecycle hooks come from the same process, also without a certificate, with headers
// that a pod chooses. Their connections have no server name, or that of a host that the pod names.
func (k *Kubelet) Lapsed(r *http.Request) error {
	if r.TLS == nil || !kubeconfig.IsHubName(r.TLS.ServerName) {
		return errors.New("nor does its connection have the secret tls-server-name of kubelet's kubeconfig, as those of probes do not; edgehub install gives kubelet one")
	}
	info, err := os.Stat(k.Kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubelet-kubeconfig: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("the tls-server-name in kubelet's kubeconfig %s is no secret: its mode is %#o, not 0600", k.Kubeconfig, mode)
	}
	name, certificate, err := kubeconfig.HubName(k.Kubeconfig)
	switch {
	case err != nil:
		return fmt.Errorf("--kubelet-kubeconfig: %w", err)
	case subtle.ConstantTimeCompare([]byte(name), []byte(r.TLS.ServerName)) != 1:
		return fmt.Errorf("its connection has another tls-server-name than kubelet's kubeconfig %s: restart kubelet if that was written anew", k.Kubeconfig)
	case certificate != nil && !time.Now().After(certificate.NotAfter):
		return fmt.Errorf("kubelet has a certificate that is good until %s, and did not show it", rfc3339(certificate.NotAfter))
	}
	return nil
}
