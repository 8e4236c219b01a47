package kubeconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzKubeconfig checks that any kubeconfig gives either an error, or an apiserver over https and
// credentials for it.
func FuzzKubeconfig(f *testing.F) {
	file := filepath.Join(f.TempDir(), "kubeconfig")
	f.Fuzz(func(t *testing.T, text []byte) {
		if strings.Contains(string(text), "/") && !strings.Contains(string(text), "//") {
			return // it may name files of this machine, devices among them
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		id, err := Load(file)
		if err != nil {
			if !strings.Contains(err.Error(), file) {
				t.Errorf("says %v, and not of which file", err)
			}
			return
		}
		if id.Server.Scheme != "https" || id.Server.Hostname() == "" || id.Server.User != nil {
			t.Errorf("the apiserver is %q", id.Server)
		}
		if id.Creds.Certificate == nil && id.Creds.Token == "" {
			t.Error("there are no credentials")
		}
	})
}

// FuzzServer checks that an accepted address has https, a host, a port and nothing else, and that no
// error has a password.
func FuzzServer(f *testing.F) {
	const password = "Pa55-planted"
	for _, s := range []string{"https://h:6443", "h", "h:1", "[::1]:6443", "http://h", "https://u:" + password + "@h", "u:" + password + "@h:1?x", "https://h/?t", "https://h:0", "https://h:99999", "//h", "https://u:" + password + "@ /", "@", "https://[::1", "a:b:c", "https://h#x", "%", "https://h\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, word string) {
		server, err := ParseServer(word)
		if err != nil {
			if strings.Contains(err.Error(), password) && strings.Contains(word, ":"+password+"@") && strings.Count(word, password) == 1 {
				t.Errorf("%q: says %v", word, err)
			}
			return
		}
		if server.Scheme != "https" || server.Hostname() == "" || server.Port() == "" || server.User != nil ||
			server.Path != "" || server.RawQuery != "" || server.Opaque != "" {
			t.Errorf("%q is %#v", word, server)
		}
	})
}
