package kubeadm

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
)

// hostTools are programs of the host's with what they load, by their path.
type hostTools struct{ files, links map[string]string }

// library is a line of ldd's: the file is what follows the arrow, or the first word.
var library = regexp.MustCompile(`(?m)(/\S+) \(0x[0-9a-f]+\)$`)

// iptables are the host's iptables, which kube-proxy and flannel call. They are one program,
// and load what is in folders of libraries.
func iptables(ctx context.Context) (hostTools, error) {
	installed, err := exec.LookPath("iptables")
	if err != nil {
		return hostTools{}, fmt.Errorf("find iptables (Debian's package iptables): %w", err)
	}
	program, err := filepath.EvalSymlinks(installed)
	if err != nil {
		return hostTools{}, fmt.Errorf("find iptables: %w", err)
	}
	tools := hostTools{files: map[string]string{program: program}, links: map[string]string{}}
	for _, name := range []string{"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"} {
		tools.links["/usr/local/bin/"+name] = program
	}
	extensions, err := filepath.Glob("/usr/lib/*/xtables/*.so")
	if err != nil {
		return hostTools{}, err
	}
	for _, e := range extensions {
		tools.files[e] = e
	}
	out, err := exec.CommandContext(ctx, "ldd", program).Output()
	if err != nil {
		return hostTools{}, fmt.Errorf("list what %s loads: %w", program, err)
	}
	for _, match := range library.FindAllStringSubmatch(string(out), -1) {
		tools.files[match[1]] = match[1]
	}
	return tools, nil
}
