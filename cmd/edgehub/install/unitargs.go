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

// unitSpecials are characters that mean something to systemd in a unit or an environment file,
// and could make another command, or other settings, of a flag.
const unitSpecials = " \t\r\n\"'\\$%"

// validateUnitArgs returns why flags, or what was made of them, cannot be written into a unit as they
// are, or nil.
func validateUnitArgs(args ...string) error {
	for _, a := range args {
		if strings.ContainsAny(a, unitSpecials) || strings.ContainsFunc(a, func(r rune) bool { return r < ' ' }) {
			return fmt.Errorf("flag %q of the hub: spaces, quotes, $, %% and backslashes do not pass through a unit or an environment file", a)
		}
	}
	return nil
}

// checkPaths looks at the files and folders that are named in units and kubeconfigs.
// Relative ones would be others for systemd.
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

// checkRootDir returns why a folder cannot be the hub's, or nil: uninstall --purge removes it
// with all that is in it, and what else may be in /var?
func checkRootDir(root string) error {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("--root-dir: %w", err)
	}
	for _, e := range entries {
		if !slices.Contains([]string{"cache", "imagepull", "pki", "lost+found"}, e.Name()) {
			return fmt.Errorf("--root-dir: %s has %s in it, which is not the hub's: give the hub a folder of its own", root, e.Name())
		}
	}
	return nil
}
