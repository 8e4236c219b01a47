// Package kubeletconf reads how the node's kubelet was started, and its configuration: as its files are now, which may not be
// how kubelet has read them.
package kubeletconf

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/yaml"
)

// DefaultRootDir is kubelet's own default for --root-dir.
const DefaultRootDir = "/var/lib/kubelet"

// Flags reads a command line, --name=value and --name value, by name without dashes.
func Flags(args []string) map[string]string {
	flags := map[string]string{}
	for i, arg := range args {
		name, value, ok := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if !strings.HasPrefix(arg, "-") {
			continue
		}
		if !ok && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			value = args[i+1]
		}
		flags[name] = value
	}
	return flags
}

// Read decodes the configuration of a kubelet with these flags into a pointer to a struct: the file of --config, and then those
// in --config-dir, of which later ones override earlier ones. root is the folder that kubelet sees as /.
func Read(root string, flags map[string]string, into any) error {
	var files []string
	if file := flags["config"]; file != "" {
		files = append(files, filepath.Join(root, file))
	}
	if dir := flags["config-dir"]; dir != "" {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error { // in lexical order
			if err == nil && !entry.IsDir() && filepath.Ext(path) == ".conf" {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("kubelet's --config-dir: %w", err)
		}
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("kubelet's configuration: %w", err)
		}
		if err := yaml.Unmarshal(content, into); err != nil {
			return fmt.Errorf("kubelet's configuration %s: %w", file, err)
		}
	}
	return nil
}
