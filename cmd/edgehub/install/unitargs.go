package install

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

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
		if !slices.Contains([]string{"cache", "imagepull", "outage.json", "pki", "lost+found"}, e.Name()) {
			return fmt.Errorf("--root-dir: %s has %s in it, which is not the hub's: give the hub a folder of its own", root, e.Name())
		}
	}
	return nil
}
