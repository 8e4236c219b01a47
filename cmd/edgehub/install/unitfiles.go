package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/edgehub-io/edgehub/cmd/edgehub/install/files"
	"github.com/edgehub-io/edgehub/cmd/edgehub/install/kubelet"
	"github.com/edgehub-io/edgehub/hub/config"
)

// unitSpecials are characters with a meaning in a unit or an environment file. They could turn a flag
// into other flags, commands or settings.
const unitSpecials = " \t\r\n\"'\\$%"

// validateUnitArgs returns an error for flags, or values derived from them, that a unit would change.
func validateUnitArgs(args ...string) error {
	for _, a := range args {
		if strings.ContainsAny(a, unitSpecials) || strings.ContainsFunc(a, func(r rune) bool { return r < ' ' }) {
			return fmt.Errorf("flag %q of the hub: spaces, quotes, $, %% and backslashes do not pass through a unit or an environment file", a)
		}
	}
	return nil
}

// checkPaths checks the paths that are written into units and kubeconfigs. They must be absolute, since
// systemd starts the hub in another working directory.
func checkPaths(c *config.Config) error {
	for flag, path := range map[string]string{
		"--kubeconfig": c.Kubeconfig, "--bootstrap-file": c.BootstrapFile, "--root-dir": c.RootDir, "--tls-cert-file": c.TLSCertFile,
	} {
		if path == "" {
			continue
		}
		if !filepath.IsAbs(path) {
			return fmt.Errorf("%s: %s is not absolute, and systemd starts the hub in another folder", flag, path)
		}
		if err := validateUnitArgs(path); err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
	}
	return nil
}

// checkRootDir returns an error if a folder contains files that are not the hub's: uninstall --purge
// removes the folder with everything in it.
func checkRootDir(root string) error {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("--root-dir: %w", err)
	}
	for _, e := range entries {
		if !slices.Contains(append(config.RootNames(), "lost+found"), e.Name()) {
			return fmt.Errorf("--root-dir: %s has %s in it, which is not the hub's: give the hub a folder of its own", root, e.Name())
		}
	}
	return nil
}

// environment returns the content of the environment file that is there, nil if none is, and the
// flags that it has or will have.
func environment(o *Options) (there []byte, extra []string, err error) {
	content, err := os.ReadFile(envFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, o.Extra, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if o.Extra != nil {
		return withArgs(content, o.Extra), o.Extra, nil
	}
	for line := range variables(content) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), argsVariable); ok {
			value = strings.ReplaceAll(value, "\\\n", "")
			extra = strings.Fields(strings.Trim(value, `"'`))
		}
	}
	return content, extra, nil
}

// argsVariable begins the line with flags in the environment file.
const argsVariable = "EDGEHUB_ARGS="

// withArgs returns the content of an environment file with these flags. All other lines, which are
// the administrator's, stay.
func withArgs(content []byte, extra []string) []byte {
	var out strings.Builder
	line, written := argsVariable+strings.Join(extra, " ")+"\n", false
	for old := range variables(completed(content)) {
		switch {
		case !strings.HasPrefix(strings.TrimSpace(old), argsVariable):
			out.WriteString(old)
		case !written: // the last of several counts
			out.WriteString(line)
			written = true
		}
	}
	if !written {
		out.WriteString(line)
	}
	return []byte(out.String())
}

// variables returns the lines of an environment file as systemd reads them: one that ends with a
// backslash goes on in the next.
func variables(content []byte) iter.Seq[string] {
	return func(yield func(string) bool) {
		line := ""
		for part := range strings.Lines(string(content)) {
			if line += part; goesOn(line) {
				continue
			}
			if !yield(line) {
				return
			}
			line = ""
		}
		if line != "" {
			yield(line)
		}
	}
}

func goesOn(line string) bool {
	if strings.HasPrefix(strings.TrimSpace(line), "#") || strings.HasPrefix(strings.TrimSpace(line), ";") {
		return false
	}
	line = strings.TrimSuffix(line, "\n")
	escapes := len(line) - len(strings.TrimRight(line, `\`)) // a backslash escapes another one
	return escapes%2 == 1
}

// completed returns the content of an environment file so that another line can follow.
func completed(content []byte) []byte {
	content = slices.Clone(content)
	if len(content) > 0 && content[len(content)-1] != '\n' {
		content = append(content, '\n')
	}
	last := ""
	for line := range variables(content) {
		last = line
	}
	if goesOn(last) {
		content = append(content, '\n')
	}
	return content
}

// environmentEntry describes the environment file with this content. Owner and mode of one that is
// there stay, but for a proxy that is added: its URL may have a password in it.
func environmentEntry(path string, content []byte, proxy bool) (files.Entry, error) {
	e, _, err := files.Read(path)
	if err != nil {
		return e, err
	}
	if e.Kind != files.KindFile {
		e = files.Entry{Kind: files.KindFile, Mode: 0o644}
	}
	if proxy {
		e.Mode &^= 0o077
	}
	e.Sum = files.Sum(content)
	return e, nil
}

// isProxy reports whether a line of an environment file is about a proxy.
func isProxy(line string) bool { return kubelet.IsProxy(strings.TrimSpace(line)) }

// withoutValues returns the content of an environment file for people to look at.
func withoutValues(content []byte) string {
	var out strings.Builder
	for line := range variables(content) {
		if isProxy(line) {
			name, _, _ := strings.Cut(line, "=")
			line = name + "=…\n"
		}
		out.WriteString(line)
	}
	return out.String()
}

// inspectKubelet reads how kubelet was started, and has this program use its proxy: see useProxy.
func inspectKubelet(ctx context.Context) (*kubelet.Kubelet, error) {
	k, err := kubelet.Inspect(ctx)
	if err == nil {
		environment, _ := os.ReadFile(envFile) // there may be none, and newPlan reports one that cannot be read
		useProxy(environment, k.Proxy)
	}
	return k, err
}

// useProxy has this program reach the apiserver as the hub will: by the variables in the environment
// file, or else by kubelet's. It must be called before the first request, and changes no variable
// that this program was started with.
func useProxy(environment []byte, proxy []string) {
	environment, _ = withProxy(environment, proxy)
	for line := range variables(environment) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if _, set := os.LookupEnv(name); isProxy(line) && !set {
			value = strings.NewReplacer("\\\n", "", `\\`, `\`, `\"`, `"`).Replace(strings.Trim(value, `"'`))
			_ = os.Setenv(name, value) // fails for an invalid name only
		}
	}
}

// withProxy returns the content of an environment file with kubelet's variables that name its proxy,
// unless it has such variables itself, maybe empty ones. added reports whether it has not.
func withProxy(content []byte, proxy []string) (out []byte, added bool) {
	for line := range variables(content) {
		if isProxy(line) {
			return content, false
		}
	}
	out = completed(content)
	for _, variable := range proxy {
		name, value, _ := strings.Cut(variable, "=")
		out = append(out, name+`="`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value)+"\"\n"...)
	}
	return out, len(proxy) > 0
}
