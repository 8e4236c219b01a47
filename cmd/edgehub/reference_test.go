package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/edgehub-io/edgehub/cmd/edgehub/install"
	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/cmd/internal/reference"
	"github.com/edgehub-io/edgehub/hub"
	"github.com/edgehub-io/edgehub/hub/config"
)

func TestFlagsReference(t *testing.T) {
	for section, fs := range map[string]*pflag.FlagSet{
		"edgehub": hubFlags(config.NewOptions(), &cli.LogOptions{}), "edgehub install": installFlags(install.NewOptions()),
		"edgehub uninstall": uninstallFlags(new(install.UninstallOptions)), "edgehub rotate-ca": rotateFlags(new(time.Duration)),
	} {
		if err := reference.Check("flags.md", section, reference.Flags(fs)); err != nil {
			t.Error(err)
		}
		var text bytes.Buffer
		if fs.SetOutput(&text); !errors.Is(fs.Parse([]string{"--help"}), pflag.ErrHelp) || !strings.Contains(text.String(), "Flags:\n      --") {
			t.Errorf("the help of %s is %q", section, text.String())
		}
	}
}

func TestMetricsReference(t *testing.T) {
	registry := prometheus.NewRegistry()
	h, err := hub.New(completeConfig(t), "edgehub/test", registry, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	metrics, err := reference.Metrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	if err := reference.Check("metrics.md", "metrics of the hub", metrics); err != nil {
		t.Error(err)
	}
}

// completeConfig returns the configuration of a hub with all parts that have metrics. Its addresses are
// this process's own, so that the usual ports are free there.
func completeConfig(t *testing.T) *config.Config {
	t.Helper()
	bootstrap := filepath.Join(t.TempDir(), "bootstrap.conf")
	const kubeconfig = `
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://192.0.2.1:6443"}}]
users: [{name: u, user: {token: abcdef.0123456789abcdef}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`
	if err := os.WriteFile(bootstrap, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	options := config.NewOptions()
	options.NodeName = "n1"
	options.BootstrapFile = bootstrap
	options.RootDir = t.TempDir()
	pid := os.Getpid() // of at most 22 bits
	options.BindAddress = fmt.Sprintf("127.%d.%d.%d", 64+pid>>16, pid>>8&0xff, pid&0xff)
	options.BindProxyAddress = options.BindAddress
	c, err := options.Config()
	if err != nil {
		t.Fatal(err)
	}
	return c
}
