package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"os/exec"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/edgehub-io/edgehub/test/cluster/freeport"
)

const (
	serviceCIDR = "10.96.0.0/16"
	serviceIP   = "10.96.0.1" // the first of serviceCIDR is the apiserver's own
	mastersRole = "system:masters"
)

// controlPlane is etcd, apiserver, controller manager and scheduler, one each.
type controlPlane struct {
	etcd              *etcd
	apiserver         *Process
	others            []*Process // apiservers besides it
	controllerManager *Process
	scheduler         *Process

	authority *authority
	serverURL string
	otherURLs []string // of others
	saKeyFile string   // signs the tokens of service accounts
	admin     *rest.Config
	client    *kubernetes.Clientset // the administrator's
}

func (c *Cluster) newControlPlane() (*controlPlane, error) {
	p := &controlPlane{}
	var err error
	if p.authority, err = newAuthority(c.path("pki"), "ca"); err != nil {
		return nil, err
	}
	if p.etcd, err = c.newEtcd(); err != nil {
		return nil, err
	}
	port, err := freeport.Take()
	if err != nil {
		return nil, err
	}
	p.serverURL = "https://" + loopback(port)
	if p.saKeyFile, err = newServiceAccountKey(c.path("pki", "service-account.key")); err != nil {
		return nil, err
	}
	if p.admin, err = c.newAdmin(p); err != nil {
		return nil, err
	}
	if p.client, err = kubernetes.NewForConfig(p.admin); err != nil {
		return nil, err
	}
	if p.apiserver, err = c.newAPIServer(p, "kube-apiserver", port); err != nil {
		return nil, err
	}
	if err := c.newOtherAPIServers(p); err != nil {
		return nil, err
	}
	if err := c.writeKubectl(); err != nil {
		return nil, err
	}
	if p.controllerManager, err = c.newControllerManager(p); err != nil {
		return nil, err
	}
	p.scheduler, err = c.newScheduler(p)
	return p, err
}

func (c *Cluster) startControlPlane(ctx context.Context) error {
	p := c.control
	first := []*Process{p.etcd.process, p.apiserver}
	for _, process := range slices.Concat(first, p.others, []*Process{p.scheduler, p.controllerManager}) {
		if err := process.Start(ctx); err != nil {
			return err
		}
		c.log.step("%s is up", process.name)
	}
	return nil
}

func (p *controlPlane) kill() error {
	errs := []error{p.scheduler.Kill(), p.controllerManager.Kill()}
	for _, other := range p.others {
		errs = append(errs, other.Kill())
	}
	return errors.Join(append(errs, p.apiserver.Kill(), p.etcd.process.Kill())...)
}

func newServiceAccountKey(file string) (string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	return file, writeKey(file, key)
}

func (c *Cluster) newAdmin(p *controlPlane) (*rest.Config, error) {
	file, err := c.componentKubeconfig(p, "admin", identity{name: "admin", groups: []string{mastersRole}})
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return nil, err
	}
	// client-go shares connections between configurations that name the same
	// files; a second cluster in the same folder must not get those of the first.
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, err
	}
	config.CAFile, config.CertFile, config.KeyFile = "", "", ""
	config.QPS = -1 // a test that waits for its own client's limit measures nothing
	return config, nil
}

// newOtherAPIServers describes the apiservers besides the first.
func (c *Cluster) newOtherAPIServers(p *controlPlane) error {
	for n := 2; n <= c.options.APIServers; n++ {
		port, err := freeport.Take()
		if err != nil {
			return err
		}
		other, err := c.newAPIServer(p, fmt.Sprintf("kube-apiserver-%d", n), port)
		if err != nil {
			return err
		}
		p.others, p.otherURLs = append(p.others, other), append(p.otherURLs, "https://"+loopback(port))
	}
	return nil
}

func (c *Cluster) newAPIServer(p *controlPlane, name string, port int) (*Process, error) {
	serving := identity{name: "kube-apiserver", hosts: []string{
		"127.0.0.1", serviceIP, "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}}
	cert, key, err := p.authority.issue(name, serving)
	if err != nil {
		return nil, err
	}
	toKubelet := identity{name: "kube-apiserver-kubelet-client", groups: []string{mastersRole}}
	kubeletCert, kubeletKey, err := p.authority.issue(name+"-kubelet-client", toKubelet)
	if err != nil {
		return nil, err
	}
	config := rest.CopyConfig(p.admin)
	config.Host = "https://" + loopback(port)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	ready := func(ctx context.Context) error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}
	return c.newProcess(name, func() *exec.Cmd {
		return c.components.command("kube-apiserver", append([]string{
			"--bind-address=127.0.0.1",
			"--advertise-address=127.0.0.1",
			fmt.Sprintf("--secure-port=%d", port),
			"--tls-cert-file=" + cert, "--tls-private-key-file=" + key,
			"--client-ca-file=" + p.authority.certFile(),
			"--etcd-servers=" + p.etcd.url,
			"--etcd-cafile=" + p.etcd.caFile, "--etcd-certfile=" + p.etcd.certFile, "--etcd-keyfile=" + p.etcd.keyFile,
			"--authorization-mode=Node,RBAC",
			"--enable-admission-plugins=NodeRestriction",
			"--service-cluster-ip-range=" + serviceCIDR,
			"--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file=" + p.saKeyFile,
			"--service-account-signing-key-file=" + p.saKeyFile,
			"--kubelet-client-certificate=" + kubeletCert, "--kubelet-client-key=" + kubeletKey,
			"--kubelet-certificate-authority=" + p.authority.certFile(),
			// Each node has an address of its own; its name resolves nowhere.
			"--kubelet-preferred-address-types=InternalIP",
			// The kubernetes Service would get the loopback address as its
			// endpoint, which is refused; nobody here goes through it.
			"--endpoint-reconciler-type=none",
		}, c.options.APIServerArgs...)...)
	}, ready), nil
}

func (c *Cluster) newControllerManager(p *controlPlane) (*Process, error) {
	config, err := c.componentKubeconfig(p, "kube-controller-manager", identity{name: "system:kube-controller-manager"})
	if err != nil {
		return nil, err
	}
	return c.newProcess("kube-controller-manager", func() *exec.Cmd {
		return c.components.command("kube-controller-manager", append([]string{
			"--kubeconfig=" + config,
			"--leader-elect=false",
			"--bind-address=127.0.0.1", "--secure-port=0",
			// The default of 20 requests a second makes its start take 5 s.
			"--kube-api-qps=1000", "--kube-api-burst=1000",
			"--use-service-account-credentials",
			"--service-account-private-key-file=" + p.saKeyFile,
			"--root-ca-file=" + p.authority.certFile(),
			"--cluster-signing-cert-file=" + p.authority.certFile(),
			"--cluster-signing-key-file=" + p.authority.keyFile(),
		}, c.options.ControllerManagerArgs...)...)
	}, p.defaultServiceAccount), nil
}

// defaultServiceAccount shows that the controller manager is at work: without
// this account no pod is admitted, and without the bundle none starts.
func (p *controlPlane) defaultServiceAccount(ctx context.Context) error {
	_, err := p.client.CoreV1().ServiceAccounts(corev1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
	if err != nil {
		return err
	}
	_, err = p.client.CoreV1().ConfigMaps(corev1.NamespaceDefault).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
	return err
}

func (c *Cluster) newScheduler(p *controlPlane) (*Process, error) {
	config, err := c.componentKubeconfig(p, "kube-scheduler", identity{name: "system:kube-scheduler"})
	if err != nil {
		return nil, err
	}
	return c.newProcess("kube-scheduler", func() *exec.Cmd {
		return c.components.command("kube-scheduler", append([]string{
			"--kubeconfig=" + config,
			"--leader-elect=false",
			"--bind-address=127.0.0.1", "--secure-port=0",
		}, c.options.SchedulerArgs...)...)
	}, nil), nil
}

// componentKubeconfig writes a kubeconfig that goes straight to the apiserver.
func (c *Cluster) componentKubeconfig(p *controlPlane, name string, id identity) (string, error) {
	cert, key, err := p.authority.issue(name, id)
	if err != nil {
		return "", err
	}
	file := c.path("kubeconfig", name)
	return file, kubeconfig{server: p.serverURL, caFile: p.authority.certFile(), certFile: cert, keyFile: key}.write(file)
}
