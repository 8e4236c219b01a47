package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cmd/edgehub/install/apiserver"
	"github.com/edgehub-io/edgehub/cmd/edgehub/install/dummyif"
	"github.com/edgehub-io/edgehub/cmd/edgehub/install/files"
	"github.com/edgehub-io/edgehub/cmd/edgehub/install/kubelet"
	"github.com/edgehub-io/edgehub/cmd/edgehub/install/systemctl"
	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/ota/api"
)

const (
	hubService     = "edgehub.service"
	hubSocket      = "edgehub.socket"
	kubeletService = kubelet.Service
)

// plan is everything that an install does.
type plan struct {
	options *Options
	config  *config.Config
	version string
	all     []plannedFile     // kubelet's drop-in is the last
	changed []plannedFile     // the files that differ from those on the node
	sockets bool              // the sockets are replaced
	restart bool              // the hub is restarted
	kubelet bool              // kubelet is restarted
	cloud   *apiserver.Client // with the node's own credentials
	first   bool              // no hub is installed
	uid     types.UID         // of the Node in the cloud; empty: it is not known

	endpoint  string         // of containerd
	bypass    []api.PodRoute // of pods that bypass the hub, or will
	oldIf     string         // an interface of the hub that is installed, which is removed first
	proxy     bool           // the hub is given kubelet's variables that name a proxy
	leadsAnew bool           // kubelet does not lead pods to these addresses so far
}

// newPlan renders all files, and compares them with those on the node.
func newPlan(ctx context.Context, o *Options, k *kubelet.Kubelet, earlier *installed, version string) (*plan, error) {
	p := &plan{options: o, version: version, first: earlier == nil, endpoint: k.Endpoint}
	env, extra, err := environment(o)
	if err != nil {
		return nil, err
	}
	args := o.hubArgs(k.Endpoint, k.RootDir())
	if p.config, err = hubConfig(append(slices.Clone(args), extra...)); err != nil {
		return nil, err
	}
	if err := errors.Join(validateUnitArgs(args...), checkPaths(p.config)); err != nil {
		return nil, err
	}
	if root := p.config.RootDir; root != config.NewOptions().RootDir && (earlier == nil || earlier.RootDir != root) {
		if err := checkRootDir(root); err != nil {
			return nil, err
		}
	}
	values, err := p.values(ctx, args, extra, k)
	if err != nil {
		return nil, err
	}
	if err := p.addFiles(values, env, k.Proxy); err != nil {
		return nil, err
	}
	if err := p.addNetworkFiles(); err != nil {
		return nil, err
	}
	p.dropOptional(earlier)
	if earlier != nil && (earlier.Interface != o.dummyIf(p.config) || !slices.Equal(earlier.PodServers, p.config.PodServers())) {
		p.oldIf = earlier.Interface
	}
	err = p.compare(ctx)
	// kubelet reads what leads pods to the hub once, and then only what changes in the cloud.
	p.leadsAnew = earlier == nil || earlier.Written[dropInFile].Kind == "" || !slices.Equal(earlier.PodServers, p.config.PodServers()) || !slices.Equal(earlier.Transforms, p.config.Transforms)
	if earlier != nil && p.leadsAnew {
		p.kubelet = true
	}
	return p, err
}

// values returns pairs of a placeholder and its value, for the templates.
func (p *plan) values(ctx context.Context, args, extra []string, k *kubelet.Kubelet) ([]string, error) {
	server, err := kubeletServer(p.config)
	if err != nil {
		return nil, err
	}
	credentials, err := clientCertificate(k, p.options.Kubeconfig)
	if err != nil {
		return nil, err
	}
	var rootDir, backoff string
	if p.config.RootDir != config.NewOptions().RootDir { // which StateDirectory= covers
		rootDir = "\nReadWritePaths=" + p.config.RootDir
	}
	const stepsSince = 254 // version of systemd
	if systemctl.Version(ctx) >= stepsSince {
		backoff = "\nRestartSteps=6\nRestartMaxDelaySec=30"
	}
	// The hub's own certificate is pinned as the CA. It has no end, and is not renewed. It signs for the server name.
	pinned := filepath.Join(p.config.PKIDir(), "serving.crt")
	var comment, address string
	lines, err := dummyif.UnitLines(ctx, p.options.DummyIfName, p.config.PodAddresses)
	if err != nil {
		return nil, err
	}
	if len(lines) > 0 {
		comment = "\n# Pods reach the hub at the addresses of " + p.options.DummyIfName + ", which outlives this unit."
		address = "\n" + strings.Join(lines, "\n")
	}
	const afterGrace = 15 * time.Second // for who has just connected, requests that are cut, and the cache's last write
	return []string{
		"{{BINARY}}", binaryFile, "{{ENV_FILE}}", envFile, "{{KUBELET_ENV}}", kubeletEnvFile, "{{KUBECONFIG}}", p.options.Kubeconfig,
		"{{ARGS}}", strings.Join(args, " "), "{{EXTRA}}", strings.Join(extra, " "),
		"{{SOCKETS}}", "\nListenStream=" + strings.Join(sockets(p.config), "\nListenStream="),
		"{{ADDRESS_COMMENT}}", comment, "{{ADDRESS}}", address,
		"{{BACKOFF}}", backoff,
		"{{STOP_SECONDS}}", strconv.Itoa(int((p.config.ShutdownGrace + afterGrace).Seconds())),
		"{{ROOT_DIR}}", rootDir,
		"{{KUBELET_SERVER}}", server, "{{AUTHORITY}}", pinned, "{{SERVER_NAME}}", hubName(kubeletKubeconfig), "{{CREDENTIALS}}", credentials,
	}, nil
}

// compare determines what changes.
func (p *plan) compare(ctx context.Context) error {
	for _, f := range p.all {
		ok, err := files.Same(f.path, f.Entry)
		if err != nil {
			return err
		}
		if f.path == envFile && files.SameContent(f.path, f.content) {
			ok = true // its owner and mode are the administrator's choice
		}
		if ok {
			continue
		}
		p.changed = append(p.changed, f)
		switch f.path {
		case dropInFile, kubeletKubeconfig:
			p.kubelet = true
		case kubeletEnvFile: // the hub reads once which apiserver the kubeconfig names
			p.kubelet, p.restart = true, true
		case socketFile:
			p.sockets = true
		case networkFiles()[0], networkFiles()[1]: // they are read at the next boot
		default:
			p.restart = true
		}
	}
	pid, err := systemctl.MainPID(ctx, hubService)
	if err != nil {
		return err
	}
	running, err := os.ReadFile(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil || files.Sum(running) != p.all[0].Sum {
		p.restart = true
	}
	p.sockets = p.sockets || !socketsAreOpen(ctx)
	p.restart = p.restart || p.sockets
	return nil
}

func (p *plan) upToDate() bool { return len(p.changed) == 0 && !p.restart && !p.kubelet }
