package install

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/test/install/machine"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

const (
	apiserverIP = "10.96.0.1"   // the first of the cluster's Services
	hubIP       = "169.254.2.1" // for pods
	hubIPv6     = "fd00::2:1"
	dummy       = "edgehub-dummy0"
)

// TestPodAccess is how pods of a node come to use its hub, and leave it again.
func TestPodAccess(t *testing.T) {
	machine.Need(t, "pods that use a hub, on a machine with systemd")
	n := newNode(t)
	n.allowSecrets()
	agent := n.startDaemonSet("kube-system", "agent", true)
	cni := n.startDaemonSet("kube-system", "cni", false)
	web := n.startReplicaSet("default", "web")
	n.startPod() // has no controller
	n.startWithoutToken()
	hub, before := n.build(false), n.tree()
	n.bring("edgehubctl")
	parts := []struct {
		name string
		run  func(n *node)
	}{
		{"a dry run lists the pods that would bypass the hub", func(n *node) {
			out := n.must(hub, "install", "--dry-run")
			n.contains(out, deletion(agent), deletion(cni), deletion(web), "not default/app: it has no controller", "nothing was changed", "link add "+dummy+" type ")
			n.lacks(out, "default/tokenless")
			n.hasInterface(false)
		}},
		{"an install says how to restart pods, and those that are use the hub", func(n *node) {
			n.contains(n.must(hub, "install"), deletion(agent), deletion(cni), deletion(web))
			n.hasInterface(true)
			for _, d := range []*workload{agent, cni} {
				n.restart(d)
				n.usesHub(d)
			}
			if got := web.get(n, "/env/KUBERNETES_SERVICE_HOST"); got != apiserverIP {
				n.t.Errorf("a pod that was not restarted has %s", got)
			}
			out := n.must(hub, "install")
			n.contains(out, "nothing was changed", deletion(web), "not default/app")
			n.lacks(out, deletion(cni))
		}},
		{"pods reach the hub by IPv6, too", func(n *node) {
			n.readsSecret(agent, "https://["+hubIPv6+"]:10268")
		}},
		{"the hub may not change the network", func(n *node) { n.hubIsUnprivileged() }},
		{"status shows who bypasses the hub", func(n *node) {
			n.contains(n.must("/root/edgehubctl", "status", "-o", "wide"), "pods        2 use the hub at "+hubIP+":10268, ["+hubIPv6+"]:10268; 2 bypass it until they restart", "default/app", "it has no controller")
		}},
		{"without the cloud a pod reads with its own token", func(n *node) {
			if err := n.link.Refuse(); err != nil {
				n.t.Fatal(err)
			}
			n.link.Reset()
			n.saysItIs("offline since")
			n.readsSecret(cni, "https://"+hubIP+":10268")
			if err := n.link.Up(); err != nil {
				n.t.Fatal(err)
			}
			n.saysItIs("online")
		}},
		{"a rotation of the CA is not noticed by pods, nor an upgrade, nor a boot", func(n *node) {
			index := n.ip("-o", "link", "show", "dev", dummy)
			n.contains(n.must("/usr/local/bin/edgehub", "rotate-ca"), "done: pods that run go on trusting the hub")
			n.systemctl("restart", "edgehub.service") // ends the connections that the pods keep
			n.readsSecret(cni, "https://"+hubIP+":10268")
			n.must(n.build(true), "install")
			n.readsSecret(cni, "https://"+hubIP+":10268")
			if now := n.ip("-o", "link", "show", "dev", dummy); now != index {
				n.t.Errorf("the interface was %s and is %s", index, now)
			}
			// As after a boot: nothing runs, the interface is gone, and kubelet's start brings all up before it.
			n.systemctl("stop", "kubelet.service", "edgehub.service", "edgehub.socket")
			n.ip("link", "delete", "dev", dummy)
			n.systemctl("start", "kubelet.service")
			n.hasInterface(true)
			n.contains(n.systemctl("show", "edgehub.socket", "--property=Before"), "kubelet.service")
			n.awaitReady()
			n.readsSecret(cni, "https://"+hubIP+":10268")
		}},
		{"addresses that pods use are not taken away", func(n *node) {
			out, err := n.edgehub(hub, "install", "--dummy-if-ip=169.254.3.1")
			n.fails(err, "exit status 1")
			n.contains(out, "reaches the apiserver at ["+hubIP+":10268", "keep --dummy-if-ip")
			out, err = n.edgehub(hub, "install", "--kubelet-only")
			n.fails(err, "exit status 1")
			n.contains(out, "reaches the apiserver at ["+hubIP+":10268")
			n.hasInterface(true)
		}},
		{"a transform that is off leads no pod to the hub, and one that is on again does", func(n *node) {
			const env, mine = "/etc/edgehub/edgehub.env", "# mine\nNO_PROXY=192.0.2.80\n"
			n.write(env, string(n.read(n.Path(env)))+mine)
			out := n.must("/usr/local/bin/edgehub", "install", "--", "--transforms=root-ca")
			n.contains(out, "restarting kubelet")
			n.contains(string(n.read(n.Path(env))), "EDGEHUB_ARGS=--transforms=root-ca\n", mine)
			n.restart(cni)
			if got := cni.get(n, "/env/KUBERNETES_SERVICE_HOST"); got != apiserverIP {
				n.t.Errorf("a pod that started without the transform has %s", got)
			}
			n.contains(n.must("/usr/local/bin/edgehub", "install", "--"), "restarting kubelet", deletion(cni))
			n.restart(cni)
			n.usesHub(cni)
			n.usesHub(agent)
		}},
		{"an uninstall leaves the hub to the pods that use it, and an install takes that back", func(n *node) {
			n.contains(n.must(hub, "uninstall", "--dry-run"), deletion(cni), "ip link delete dev "+dummy, "nothing was changed")
			roots, token := agent.roots(n), agent.get(n, "/file"+tokenFile)
			n.uninstallWaits(hub, agent, cni)
			n.certificateIsForPods(roots) // kubelet may have taken the hub's CA out of the pod's file by now
			n.readsSecretWith(roots, token)
			n.hasInterface(true)
			n.contains(n.must(hub, "install"), "the hub is still there", "restarting kubelet")
			n.restart(cni)
			n.usesHub(cni)
		}},
		{"an uninstall goes on when no pod uses the hub, and leaves nothing", func(n *node) {
			n.uninstallWaits(hub, agent, cni, "--purge")
			for _, d := range []*workload{agent, cni} {
				n.restart(d)
				if got := d.get(n, "/env/KUBERNETES_SERVICE_HOST"); got != apiserverIP {
					n.t.Errorf("pod %s has %s", d.name, got)
				}
				if got := strings.Count(d.get(n, "/file"+caFile), "BEGIN CERTIFICATE"); got != 1 {
					n.t.Errorf("pod %s trusts %d CAs", d.name, got)
				}
			}
			n.contains(n.must(hub, "uninstall"), "done: the node lives on its own")
			n.hasInterface(false)
			n.unchanged(before)
		}},
		{"an uninstall by force leaves pods without an apiserver", func(n *node) {
			n.must(hub, "install")
			n.restart(cni)
			n.usesHub(cni)
			n.contains(n.must(hub, "uninstall", "--force", "--purge"), "loses its apiserver", deletion(cni))
			n.hasInterface(false)
			n.unchanged(before)
		}},
	}
	for _, part := range parts {
		began := time.Now()
		if !t.Run(part.name, func(t *testing.T) { m := *n; m.t = t; part.run(&m); n.version = m.version }) {
			return
		}
		t.Logf("%v: %s", time.Since(began).Round(time.Millisecond), part.name)
	}
}

// deletion is how the command begins by which a workload's pod is restarted.
func deletion(w *workload) string {
	return "kubectl delete pod --namespace=" + w.namespace + " " + w.name + "-"
}

// uninstallWaits has an uninstall lead kubelet to the apiserver, and leave the hub to the pods of two workloads.
func (n *node) uninstallWaits(hub string, a, b *workload, flags ...string) {
	n.t.Helper()
	out, err := n.edgehub(hub, append([]string{"uninstall"}, flags...)...)
	n.fails(err, "exit status 1")
	n.contains(out, "which stays until it is gone", deletion(a), deletion(b), "run uninstall again when they have restarted")
	n.systemctl("is-active", "edgehub.socket")
}

func (n *node) lacks(text, word string) {
	n.t.Helper()
	if strings.Contains(text, word) {
		n.t.Errorf("%q is in what it said:\n%s", word, text)
	}
}

func (n *node) ip(args ...string) string {
	n.t.Helper()
	out, err := n.Run(n.t.Context(), append([]string{"ip"}, args...)...)
	if err != nil {
		n.t.Fatal(err)
	}
	return out
}

// hasInterface fails the test unless the dummy interface is there, with all its addresses, or is not.
func (n *node) hasInterface(want bool) {
	n.t.Helper()
	out, err := n.Run(n.t.Context(), "ip", "address", "show", "dev", dummy)
	if !want {
		if err == nil {
			n.t.Errorf("the interface is there:\n%s", out)
		}
		return
	}
	if err != nil {
		n.t.Fatal(err)
	}
	n.contains(out, "inet "+hubIP+"/32", "inet6 "+hubIPv6+"/128", "UP")
}

// hubIsUnprivileged fails the test if the hub's process could change the node's network.
func (n *node) hubIsUnprivileged() {
	n.t.Helper()
	const netAdmin = 1 << 12
	pid := n.systemctl("show", "edgehub.service", "--property=MainPID", "--value")
	status, err := n.Run(n.t.Context(), "cat", "/proc/"+pid+"/status")
	if err != nil {
		n.t.Fatal(err)
	}
	sets := 0
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
		if !strings.HasPrefix(name, "Cap") {
			continue
		}
		var set uint64
		if _, err := fmt.Sscanf(value, "%x", &set); err != nil {
			n.t.Fatal(err)
		}
		sets++
		if set&netAdmin != 0 {
			n.t.Errorf("%s has CAP_NET_ADMIN", line)
		}
	}
	if sets == 0 {
		n.t.Errorf("no capabilities in\n%s", status)
	}
}

// usesHub fails the test unless a pod is configured for the hub as any program in a pod is, and
// reads with its own token.
func (n *node) usesHub(w *workload) {
	n.t.Helper()
	host, port := w.get(n, "/env/KUBERNETES_SERVICE_HOST"), w.get(n, "/env/KUBERNETES_SERVICE_PORT")
	if host != hubIP || port != "10268" {
		n.t.Fatalf("pod %s has %s:%s", w.name, host, port)
	}
	if got := strings.Count(w.get(n, "/file"+caFile), "BEGIN CERTIFICATE"); got != 2 {
		n.t.Errorf("pod %s trusts %d CAs", w.name, got)
	}
	n.readsSecret(w, "https://"+host+":"+port)
	n.certificateIsForPods(w.roots(n))
	// Its own token is not the node's: the Service is as the apiserver has it.
	service := w.ask(n, "https://"+host+":"+port+"/api/v1/namespaces/default/services/kubernetes")
	n.contains(service, apiserverIP)
	n.lacks(service, hubIP)
}

// roots are the CAs that the workload's pod trusts now.
func (w *workload) roots(n *node) *x509.CertPool {
	n.t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(w.get(n, "/file"+caFile)))
	return roots
}

// certificateIsForPods fails the test unless the hub's certificates are signed by a CA that a pod
// trusts: for all names of the apiserver, to whoever asks for one, and else for its addresses.
func (n *node) certificateIsForPods(roots *x509.CertPool) {
	n.t.Helper()
	for asked, names := range map[string][]string{
		"kubernetes.default.svc": {"kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "kubernetes"},
		hubIP:                    {apiserverIP, hubIP, hubIPv6}, // which no client sends
	} {
		leaf := n.leaf(roots, asked)
		for _, name := range names {
			if err := leaf.VerifyHostname(name); err != nil {
				n.t.Error(err)
			}
		}
	}
}

// leaf is the hub's certificate for a client that asks for a name.
func (n *node) leaf(roots *x509.CertPool, name string) *x509.Certificate {
	n.t.Helper()
	raw, err := n.Dial(n.t.Context(), "tcp", hubIP+":10268")
	if err != nil {
		n.t.Fatal(err)
	}
	defer raw.Close()
	conn := tls.Client(raw, &tls.Config{RootCAs: roots, ServerName: name, MinVersion: tls.VersionTLS12})
	if err := conn.HandshakeContext(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
	return conn.ConnectionState().PeerCertificates[0]
}

// readsSecret fails the test unless a pod reads what its service account may read, and the node
// may not.
func (n *node) readsSecret(w *workload, server string) {
	n.t.Helper()
	n.contains(w.ask(n, server+"/api/v1/namespaces/kube-system/secrets/for-agents"), `"for-agents"`)
}

// readsSecretWith is readsSecret of a program that has read its CAs and token when it started.
func (n *node) readsSecretWith(roots *x509.CertPool, token string) {
	n.t.Helper()
	client := &http.Client{Transport: &http.Transport{
		DialContext: n.Dial, DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
	}}
	req, err := http.NewRequestWithContext(n.t.Context(), http.MethodGet, "https://"+hubIP+":10268/api/v1/namespaces/kube-system/secrets/for-agents", http.NoBody)
	if err != nil {
		n.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := client.Do(req)
	if err != nil {
		n.t.Fatal(err)
	}
	defer res.Body.Close()
	n.contains(readAll(res.Body), `"for-agents"`)
}

// ask has a pod send a request, with its own token and the CAs that it has.
func (w *workload) ask(n *node, url string) string {
	n.t.Helper()
	return w.get(n, "/ask?token="+tokenFile+"&url="+url)
}

// get returns the answer of the workload's pod to a request.
func (w *workload) get(n *node, path string) string {
	n.t.Helper()
	client := &http.Client{Transport: &http.Transport{DialContext: n.Dial, DisableKeepAlives: true}}
	var body string
	poll.Check(n.t.Context(), n.t, "pod "+w.name+" answers "+path, func(ctx context.Context) error {
		address, err := w.address(ctx, n)
		if err != nil {
			return err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, http.NoBody)
		if err != nil {
			return err
		}
		res, err := client.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if body = readAll(res.Body); res.StatusCode != http.StatusOK {
			return errors.New(res.Status + ": " + body)
		}
		return nil
	})
	return body
}
