package install

import (
	"cmp"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/edgehub-io/edgehub/cmd/edgehub/install/files"
	"github.com/edgehub-io/edgehub/cmd/edgehub/install/kubelet"
	"github.com/edgehub-io/edgehub/hub/kubeconfig"
)

// The files that an install writes.
const (
	binaryFile        = "/usr/local/bin/edgehub"
	unitFolder        = "/etc/systemd/system"
	serviceFile       = unitFolder + "/" + hubService
	socketFile        = unitFolder + "/" + hubSocket
	serviceLink       = unitFolder + "/multi-user.target.wants/" + hubService
	socketLink        = unitFolder + "/sockets.target.wants/" + hubSocket
	envFile           = "/etc/edgehub/edgehub.env"
	kubeletKubeconfig = "/etc/kubernetes/edgehub-kubelet.conf"
	dropInFile        = unitFolder + "/kubelet.service.d/20-edgehub.conf"
)

//go:embed templates
var templates embed.FS

// plannedFile is one file, or link, that an install writes.
type plannedFile struct {
	path string
	files.Entry
	content []byte
}

// addFiles lists the files. env is the content of the environment file; nil: the template's. proxy
// are kubelet's variables.
func (p *plan) addFiles(values []string, env []byte, proxy []string) error {
	binary, err := os.ReadFile(cmp.Or(p.options.Binary, "/proc/self/exe")) // the latter also if its file was replaced meanwhile
	if err != nil {
		return fmt.Errorf("read the program to install: %w", err)
	}
	file := func(path string, mode fs.FileMode, content []byte) {
		p.all = append(p.all, plannedFile{path, files.Entry{Kind: files.KindFile, Mode: mode, Sum: files.Sum(content)}, content})
	}
	link := func(path, target string) {
		p.all = append(p.all, plannedFile{path, files.Entry{Kind: files.KindLink, Target: target}, nil})
	}
	rendered := func(name string) []byte {
		content, renderErr := render(name, values)
		err = errors.Join(err, renderErr)
		return content
	}
	if env == nil {
		env = rendered("edgehub.env")
	}
	env, p.proxy = withProxy(env, proxy)
	envEntry, envErr := environmentEntry(envFile, env, p.proxy)
	if envErr != nil {
		return envErr
	}
	file(binaryFile, 0o755, binary)
	p.all = append(p.all, plannedFile{envFile, envEntry, env})
	file(socketFile, 0o644, rendered(hubSocket))
	file(serviceFile, 0o644, rendered(hubService))
	link(socketLink, socketFile)
	link(serviceLink, serviceFile)
	file(rejoinFile, 0o644, rendered(rejoinService))
	file(kubeletKubeconfig, 0o600, rendered("edgehub-kubelet.conf"))
	led, ledErr := kubeletEnv(p.options.Kubeconfig)
	file(kubeletEnvFile, 0o644, led)
	file(dropInFile, 0o644, rendered("20-edgehub.conf"))
	return errors.Join(err, ledErr)
}

// leadsKubelet reports whether a file leads kubelet to the hub, and so is written when that answers.
func leadsKubelet(path string) bool { return path == dropInFile || path == kubeletEnvFile }

// networkFiles have programs that set up networks leave the dummy interface alone: systemd-networkd, which would
// have a boot wait for it where a file of its own matches any name, and NetworkManager. The first file that
// matches counts, by name.
func networkFiles() []string {
	return []string{"/etc/systemd/network/00-edgehub.network", "/etc/NetworkManager/conf.d/00-edgehub.conf"}
}

// addNetworkFiles plans those of programs that the node has.
func (p *plan) addNetworkFiles() error {
	name := p.options.dummyIf(p.config)
	if name == "" {
		return nil
	}
	for _, path := range networkFiles() {
		if _, err := os.Stat(filepath.Dir(path)); err != nil {
			continue
		}
		content, err := render(filepath.Base(path), []string{"{{INTERFACE}}", name})
		if err != nil {
			return err
		}
		p.add(path, files.Entry{Kind: files.KindFile, Mode: 0o644, Sum: files.Sum(content)}, content)
	}
	return nil
}

// render fills in a template. With text/template instead of strings.Replacer, the linker could not
// remove unused methods, 9 MB of them.
func render(name string, values []string) ([]byte, error) {
	text, err := templates.ReadFile("templates/" + name)
	if err != nil {
		return nil, err
	}
	return []byte(strings.NewReplacer(values...).Replace(string(text))), nil
}

// add plans a file before kubelet's drop-in, which is the last.
func (p *plan) add(path string, e files.Entry, content []byte) {
	p.all = slices.Insert(p.all, len(p.all)-1, plannedFile{path, e, content})
}

// dropOptional plans that those optional files go which an earlier install has written and this one does not.
func (p *plan) dropOptional(earlier *installed) {
	if earlier == nil {
		return
	}
	for _, path := range slices.Sorted(maps.Keys(earlier.Written)) {
		if slices.Contains(networkFiles(), path) && earlier.Written[path].Kind != "" && !slices.ContainsFunc(p.all, func(f plannedFile) bool { return f.path == path }) {
			p.add(path, files.Entry{}, nil)
		}
	}
}

// hubName returns the secret tls-server-name in kubelet's kubeconfig for the hub, or a new one.
func hubName(file string) string {
	if name, _, err := kubeconfig.HubName(file); err == nil && kubeconfig.IsHubName(name) {
		return name
	}
	return kubeconfig.NewHubName()
}

// clientCertificate returns lines of a kubeconfig with kubelet's client certificate: the one that it
// rotates or, if it does not, that of the node's own kubeconfig.
func clientCertificate(k *kubelet.Kubelet, ownKubeconfig string) (string, error) {
	lines := func(suffix, certificate, key string) string {
		return "\n    client-certificate" + suffix + ": " + certificate + "\n    client-key" + suffix + ": " + key
	}
	if _, err := os.Stat(k.Certificate()); err == nil {
		return lines("", k.Certificate(), k.Certificate()), nil
	}
	own, err := kubeconfig.LoadREST(ownKubeconfig)
	if err != nil {
		return "", fmt.Errorf("find kubelet's client certificate: %w", err)
	}
	if own.CertFile != "" {
		return lines("", own.CertFile, own.KeyFile), nil
	}
	return lines("-data", base64.StdEncoding.EncodeToString(own.CertData), base64.StdEncoding.EncodeToString(own.KeyData)), nil
}
