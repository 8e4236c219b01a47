// Package kubelet reads how the node's kubelet was started, and checks its unit.
package kubelet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/edgehub-io/edgehub/cmd/edgehub/install/systemctl"
	"github.com/edgehub-io/edgehub/hub/kubeletconf"
)

// Service is kubelet's unit.
const Service = "kubelet.service"

// Kubelet is how the node's kubelet was started, according to its command line. Files may have changed
// since.
type Kubelet struct {
	PID      int
	Flags    map[string]string // by name, without dashes
	Endpoint string            // of containerd: unix:///…
	// Proxy are the variables of its environment that name a proxy, or what is reached without
	// one, as NAME=VALUE.
	Proxy []string
}

// defaultEndpoint is kubelet's own (SetDefaults_KubeletConfiguration in its
// pkg/kubelet/apis/config/v1beta1).
const defaultEndpoint = "unix:///run/containerd/containerd.sock"

// Inspect reads how the running kubelet was started.
func Inspect(ctx context.Context) (*Kubelet, error) {
	values, err := systemctl.Properties(ctx, Service, "LoadState", "ActiveState", "MainPID")
	if err != nil {
		return nil, err
	}
	if values["LoadState"] != "loaded" {
		return nil, errors.New("there is no kubelet.service here: is this a node that kubeadm has set up?")
	}
	k := &Kubelet{}
	if k.PID, err = strconv.Atoi(values["MainPID"]); err != nil || k.PID == 0 {
		return nil, fmt.Errorf("kubelet.service is %s: start it first; a node that does not work is not turned over", values["ActiveState"])
	}
	line, err := commandLine(k.PID)
	if err != nil {
		return nil, fmt.Errorf("read kubelet's command line: %w", err)
	}
	k.Flags = kubeletconf.Flags(strings.Split(strings.TrimRight(string(line), "\x00"), "\x00"))
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", k.PID))
	if err != nil {
		return nil, fmt.Errorf("read kubelet's environment: %w", err)
	}
	k.Proxy = proxyVariables(strings.Split(string(environ), "\x00"))
	k.Endpoint, err = k.findEndpoint()
	return k, err
}

// proxyVariables returns those of environ that Go's HTTP clients read, and that are not empty.
func proxyVariables(environ []string) []string {
	var out []string
	for _, variable := range environ {
		if _, value, _ := strings.Cut(variable, "="); IsProxy(variable) && value != "" {
			out = append(out, variable)
		}
	}
	return out
}

// IsProxy reports whether a variable, NAME=VALUE, names a proxy, or what is reached without one.
func IsProxy(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	switch strings.ToUpper(name) {
	case "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY":
		return true
	}
	return false
}

// commandLine returns the command line of a service's main process. It fails while that process is
// still systemd, about to execute the service's program.
func commandLine(pid int) ([]byte, error) {
	program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)) // first: it changes before the command line
	if err != nil {
		return nil, err
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return nil, err
	}
	if name := filepath.Base(program); name == "systemd" || name == "systemd-executor" || len(line) == 0 {
		return nil, fmt.Errorf("systemd is about to start it as process %d", pid)
	}
	return line, nil
}

// Flag returns the value of a flag, or fallback if it is empty.
func (k *Kubelet) Flag(name, fallback string) string {
	if value := k.Flags[name]; value != "" {
		return value
	}
	return fallback
}

// RootDir returns kubelet's --root-dir.
func (k *Kubelet) RootDir() string { return k.Flag("root-dir", kubeletconf.DefaultRootDir) }

// Certificate returns the path of kubelet's rotated client certificate and its key.
func (k *Kubelet) Certificate() string {
	return filepath.Join(k.Flag("cert-dir", filepath.Join(k.RootDir(), "pki")), "kubelet-client-current.pem")
}

// NodeName returns what kubelet calls its node by --hostname-override, as kubelet does: without
// blanks, in small letters. Without the flag, it returns fallback.
func (k *Kubelet) NodeName(fallback string) string {
	return strings.ToLower(strings.TrimSpace(k.Flag("hostname-override", fallback)))
}

// findEndpoint returns the endpoint of the container runtime as kubelet finds it: from its flag, the
// last of the files in --config-dir, --config, or its default.
func (k *Kubelet) findEndpoint() (string, error) {
	if endpoint := k.Flags["container-runtime-endpoint"]; endpoint != "" {
		return endpoint, nil
	}
	var config struct {
		ContainerRuntimeEndpoint string `json:"containerRuntimeEndpoint"`
	}
	if err := kubeletconf.Read("", k.Flags, &config); err != nil {
		return "", err
	}
	return cmp.Or(config.ContainerRuntimeEndpoint, defaultEndpoint), nil
}

// CheckUnit returns an error unless kubelet.service uses the variable that the drop-in
// sets by the file own, and nothing overrides the drop-in.
func CheckUnit(ctx context.Context, own string) error {
	values, err := systemctl.Properties(ctx, Service, "Environment", "ExecStart", "EnvironmentFiles", "FragmentPath", "DropInPaths")
	if err != nil {
		return err
	}
	const name = "KUBELET_KUBECONFIG_ARGS"
	if !strings.Contains(values["ExecStart"], "$"+name) {
		return fmt.Errorf("kubelet.service does not start kubelet with $%s, as kubeadm's drop-in does (it is made of %s %s); see docs/install.md for what to do by hand",
			name, values["FragmentPath"], values["DropInPaths"])
	}
	if !strings.Contains(values["Environment"], name+"=") {
		return fmt.Errorf("no Environment= of kubelet.service sets %s, as kubeadm's drop-in does", name)
	}
	for _, file := range strings.Fields(values["EnvironmentFiles"]) {
		content, err := os.ReadFile(file)
		if err == nil && file != own && strings.Contains("\n"+string(content), "\n"+name+"=") {
			return fmt.Errorf("%s sets %s, and wins over every drop-in of kubelet.service: take the line out of it", file, name)
		}
	}
	return nil
}
