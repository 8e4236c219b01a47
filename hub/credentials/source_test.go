package credentials

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edgehub-io/edgehub/hub/config"
)

const aCluster = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://SERVER:6443"}}]
users: [{name: u, user: {token: "abcdef.0123456789abcdef"}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`

func TestIdentityWithABootstrapFile(t *testing.T) {
	tests := map[string]struct {
		own, bootstrap string // the servers in the two files; empty: there is none
		server         string
		missing        bool
		err            string
	}{
		"neither is there":           {"", "", "", false, "no such file or directory, and there is no certificate from an earlier start in "},
		"there is a bootstrap file":  {"", "new.example.com", "new.example.com:6443", true, ""},
		"there is a certificate":     {"old.example.com", "", "old.example.com:6443", false, ""},
		"both, and they are equal":   {"new.example.com", "new.example.com", "new.example.com:6443", false, ""},
		"both, and the cloud moved":  {"old.example.com", "new.example.com", "new.example.com:6443", false, ""},
		"the bootstrap file is none": {"", "not an address", "", false, "--bootstrap-file: kubeconfig "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := &config.Config{Options: config.Options{RootDir: t.TempDir(), BootstrapFile: filepath.Join(t.TempDir(), "bootstrap.kubeconfig")}}
			source, err := Open(c, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			for file, server := range map[string]string{source.own.Kubeconfig(): tt.own, c.BootstrapFile: tt.bootstrap} {
				if server == "" {
					continue
				}
				if err := os.WriteFile(file, []byte(strings.ReplaceAll(aCluster, "SERVER", server)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			id, err := source.Load()
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if id.Server.Host != tt.server || (id.Creds.Missing != nil) != tt.missing {
				t.Errorf("server %s, missing %v", id.Server, id.Creds.Missing)
			}
			if tt.missing && (id.Creds.Token != "" || id.Creds.Certificate != nil) {
				t.Error("the bootstrap token is taken for the node's")
			}
		})
	}
}

// Another token in the bootstrap file does not change the node's identity: connections stay open.
func TestAnotherBootstrapTokenChangesNothing(t *testing.T) {
	c := &config.Config{Options: config.Options{RootDir: t.TempDir(), BootstrapFile: filepath.Join(t.TempDir(), "bootstrap.kubeconfig")}}
	source, err := Open(c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	digest := func(file, text string) [32]byte {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		id, err := source.Load()
		if err != nil {
			t.Fatal(err)
		}
		return id.Digest
	}
	before := digest(c.BootstrapFile, aCluster)
	if digest(c.BootstrapFile, strings.Replace(aCluster, "abcdef.", "fedcba.", 1)) != before {
		t.Error("another token counts as other credentials")
	}
	if digest(c.BootstrapFile, strings.Replace(aCluster, "SERVER", "other", 1)) == before {
		t.Error("another server does not count")
	}
	if digest(source.own.Kubeconfig(), aCluster) == before {
		t.Error("a certificate does not count")
	}
}
