package images

import (
	"fmt"
	"os"
	"path/filepath"
)

// hostsFile sends whoever wants images of a host to a registry, and nowhere else.
// The arguments: URL of the registry, further lines for it.
const hostsFile = `server = %[1]q
[host.%[1]q]
  capabilities = ["pull", "resolve"]
%[2]s`

// WriteHosts has containerd ask this registry for images of a host, "name:port",
// that is, for those whose reference begins with it: the registry's own Addr, or
// another that it is a mirror of. folder is what containerd's config_path names. It
// takes effect at once.
func (r *Registry) WriteHosts(folder, host string) error {
	if err := r.writeHosts(filepath.Join(folder, host)); err != nil {
		return fmt.Errorf("write how to reach %s: %w", host, err)
	}
	return nil
}

func (r *Registry) writeHosts(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	authority := ""
	if ca := r.CA(); ca != nil {
		file := filepath.Join(folder, "ca.crt")
		authority = fmt.Sprintf("  ca = %q\n", file)
		if err := os.WriteFile(file, ca, 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(folder, "hosts.toml"), fmt.Appendf(nil, hostsFile, r.URL(), authority), 0o644)
}
