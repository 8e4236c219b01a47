package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/edgehub-io/edgehub/cmd/edgehub/install/files"
	"github.com/edgehub-io/edgehub/cmd/edgehub/install/systemctl"
	"github.com/edgehub-io/edgehub/hub/binding"
	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/hub/kubeconfig"
)

// To join a cluster, kubelet needs kubeadm's own arguments: it asks the apiserver for a certificate with a bootstrap
// token, and writes the result to the path of --kubeconfig, for which kubeadm waits. So whether kubelet talks to the
// hub is in a file of its own, kubeletEnvFile, which names the cluster that the hub was set up for. Before each start of
// kubelet, [KubeletStart] removes that file if the node's kubeconfig is gone, as after kubeadm reset, or names
// another cluster, and starts rejoinService. That waits until the node is Ready, and runs [Install], which writes
// the file again.
const (
	kubeletEnvFile = "/etc/edgehub/kubelet.env"
	rejoinService  = "edgehub-rejoin.service"
	rejoinFile     = unitFolder + "/" + rejoinService
)

// caPrefix begins a line of kubeletEnvFile with a CA's key.
const caPrefix = "# CA "

// KubeletStart decides whom kubelet, which is about to start, talks to. file is the node's own kubeconfig. If
// KubeletStart fails, kubelet talks to whom it did before.
func KubeletStart(ctx context.Context, file string) error {
	r, err := readRecord()
	if err != nil {
		return err
	}
	var known []string
	if r.Installed != nil {
		known = binding.CAs((&config.Config{Options: config.Options{RootDir: r.Installed.RootDir}}).BindingFile())
	}
	led, err := ledToHub(kubeletEnvFile, file, known)
	if led || err != nil {
		return err
	}
	fmt.Println("kubelet talks to the apiserver itself, until its node is Ready and edgehub has led it back to the hub")
	_, err = systemctl.Run(ctx, "start", "--no-block", rejoinService)
	return err
}

// ledToHub reports whether envFile is there and for the cluster of the kubeconfig file. It removes one that is not,
// and notes the CAs of a cluster that has others beside those it had. known are CAs by which the hub knows the cluster, which
// may have got another one since kubelet started last.
func ledToHub(envFile, file string, known []string) (bool, error) {
	there, err := os.ReadFile(envFile)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return false, files.Write(envFile, files.Entry{}, nil)
	}
	now, err := kubeletEnv(file)
	switch {
	case err != nil:
		return false, err
	case bytes.Equal(now, there):
		return true, nil
	case binding.ShareCA(casIn(now), append(casIn(there), known...)):
		entry, _, err := files.Read(envFile)
		if entry.Sum = files.Sum(now); err == nil {
			err = files.Write(envFile, entry, now)
		}
		return true, err
	}
	return false, files.Write(envFile, files.Entry{}, nil)
}

// kubeletEnv returns what kubeletEnvFile has for the cluster of a kubeconfig.
func kubeletEnv(file string) ([]byte, error) {
	config, err := kubeconfig.LoadREST(file)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", file, err)
	}
	cas := config.CAData
	if len(cas) == 0 && config.CAFile != "" {
		if cas, err = os.ReadFile(config.CAFile); err != nil {
			return nil, fmt.Errorf("kubeconfig %s: %w", file, err)
		}
	}
	var lines strings.Builder
	for _, ca := range binding.KeysOf(cas) {
		lines.WriteString(caPrefix + ca + "\n")
	}
	return render("kubelet.env", []string{"{{KUBELET_KUBECONFIG}}", kubeletKubeconfig, "{{CAS}}", lines.String()})
}

// casIn returns the CAs that a content of kubeletEnvFile names.
func casIn(content []byte) (all []string) {
	for line := range strings.Lines(string(content)) {
		if ca, ok := strings.CutPrefix(line, caPrefix); ok {
			all = append(all, strings.TrimSpace(ca))
		}
	}
	return all
}

// rejoinPause is between two questions whether the node is Ready, of which there may be many.
const rejoinPause = 2 * time.Second

// Rejoin waits until the node has joined a cluster and is Ready, and has kubelet talk to the hub then, as another install
// does. It tries that once. It returns at once if kubelet talks to the hub, or nothing is installed.
func Rejoin(ctx context.Context, version string, out io.Writer) error {
	began := time.Now()
	fmt.Fprintln(out, "waiting until the apiserver says that the node is Ready")
	for said := ""; ; {
		wanted, err := rejoinIsWanted()
		if !wanted || err != nil {
			return err
		}
		if err = readySince(ctx, began); err == nil {
			// The node may have another name than before: it is the one in its certificate.
			given := func(flag string) bool { return flag == "node-name" }
			if err = Install(ctx, NewOptions(), given, version, out); err == nil {
				return nil
			}
			if !errors.Is(err, errBusy) {
				return fmt.Errorf("kubelet goes on talking to the apiserver itself; edgehub install leads it to the hub: %w", err)
			}
		}
		if err.Error() != said {
			said = err.Error()
			fmt.Fprintln(out, "not yet:", said)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(rejoinPause):
		}
	}
}

// rejoinIsWanted returns false if kubelet talks to the hub, or is not to.
func rejoinIsWanted() (bool, error) {
	r, err := readRecord()
	if err != nil || r.Installed == nil || r.Change != nil && r.Change.Uninstall {
		return false, err
	}
	_, err = os.Stat(kubeletEnvFile)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return false, err
}

// readySince returns nil if the apiserver itself says that the node is Ready, as kubelet has reported after since.
func readySince(ctx context.Context, since time.Time) error {
	r, err := readRecord()
	if err != nil || r.Installed == nil {
		return err
	}
	k, err := inspectKubelet(ctx)
	if err != nil {
		return err
	}
	o := r.Installed.Options
	o.NodeName = ""
	var said strings.Builder
	cloud := (&checks{out: &said}).checkIdentity(&o, k, true)
	if cloud == nil {
		return errors.New("the node cannot ask the apiserver: " + strings.Join(strings.Fields(said.String()), " "))
	}
	return cloud.Ready(ctx, o.NodeName, since)
}
