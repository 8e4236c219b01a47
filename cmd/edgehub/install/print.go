package install

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"

	"github.com/edgehub-io/edgehub/cmd/edgehub/install/files"
)

// print lists files and commands. With texts, it also prints the new contents.
func (p *plan) print(w io.Writer, texts bool) {
	fmt.Fprintln(w, "\nfiles:")
	for _, f := range p.all {
		word := "same   "
		if slices.ContainsFunc(p.changed, func(c plannedFile) bool { return c.path == f.path }) {
			word = "write  "
			if _, err := os.Lstat(f.path); err == nil {
				word = "replace"
			}
		}
		if f.Kind == "" {
			fmt.Fprintf(w, "  remove   %s\n", f.path)
			continue
		}
		fmt.Fprintf(w, "  %s  %s", word, f.path)
		if f.Kind == files.KindLink {
			fmt.Fprintf(w, " -> %s\n", f.Target)
			continue
		}
		fmt.Fprintf(w, "  (mode %04o, %d bytes)\n", f.Mode, len(f.content))
	}
	fmt.Fprintln(w, "commands:")
	for _, c := range p.commands() {
		fmt.Fprintln(w, "  "+c)
	}
	if !texts {
		return
	}
	printBypassing(w, p.bypass)
	for _, f := range p.changed {
		switch {
		case f.path == envFile:
			fmt.Fprintf(w, "\n--- %s\n%s", f.path, withoutValues(f.content))
		case f.path == kubeletKubeconfig:
			fmt.Fprintf(w, "\n--- %s\n%s", f.path, kubeconfigSecrets.ReplaceAll(f.content, []byte("$1…")))
		case f.Kind == files.KindFile && f.path != binaryFile:
			fmt.Fprintf(w, "\n--- %s\n%s", f.path, f.content)
		}
	}
}

// kubeconfigSecrets matches the lines of kubelet's kubeconfig for the hub that people are not shown.
var kubeconfigSecrets = regexp.MustCompile(`(?m)^( *(?:tls-server-name|client-key-data): ).*$`)

// commands describes what apply will run.
func (p *plan) commands() []string {
	var all []string
	if len(p.changed) > 0 {
		all = append(all, "systemctl daemon-reload")
	}
	if p.sockets && !p.first {
		all = append(all, "systemctl stop "+hubService+" "+hubSocket)
	}
	if p.sockets && p.oldIf != "" {
		all = append(all, "ip link delete dev "+p.oldIf)
	}
	if p.sockets {
		start := "systemctl start " + hubSocket
		if name := p.options.dummyIf(p.config); name != "" {
			start += ", which sets up the interface " + name
		}
		all = append(all, start)
	}
	if p.restart {
		all = append(all, "systemctl restart "+hubService, fmt.Sprintf("wait until the hub is ready, and the node reads itself through it (at most %v)", p.options.Wait))
	}
	if p.leadsPods() {
		all = append(all, "ask the hub from network namespaces of pods")
	}
	if p.kubelet {
		all = append(all, "systemctl restart "+kubeletService, fmt.Sprintf("wait until node %s is Ready and has renewed its lease through the hub (at most %v)", p.options.NodeName, p.options.Wait))
	}
	return all
}
