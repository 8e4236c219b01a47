// Package alerts tests deploy/monitoring without a cluster: alerts and dashboard ask
// for metrics and labels that hub and controller have, and alerts fire when they
// should and at no other time, as Prometheus itself computes it.
//
// It is a module of its own, so that no test of the product runs with the versions of
// libraries that Prometheus wants.
package alerts

import (
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/controller"
	"github.com/edgehub-io/edgehub/hub"
	"github.com/edgehub-io/edgehub/hub/config"
)

// exposed are the labels of each metric that hub or controller can expose, by the
// metric's name.
type exposed map[string]map[string]bool

// scraped are labels that a scrape adds.
var scraped = []string{"instance", "job", "pod"}

func (e exposed) add(name string, labels []string) {
	if e[name] == nil {
		e[name] = map[string]bool{}
	}
	for _, label := range append(labels, scraped...) {
		e[name][label] = true
	}
}

// everything is read off the registries that hub and controller fill: also what a
// scrape does not show before it has happened.
func everything(t *testing.T) exposed {
	t.Helper()
	all := exposed{}
	all.add("up", nil) // Prometheus makes it
	for _, registry := range []*prometheus.Registry{hubRegistry(t), controllerRegistry(t)} {
		described := make(chan *prometheus.Desc)
		go func() { registry.Describe(described); close(described) }()
		for d := range described {
			name, labels := parts(t, d)
			for _, suffix := range []string{"", "_bucket", "_sum", "_count"} {
				all.add(name+suffix, append(labels, "le"))
			}
		}
		registered, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range registered { // what does not describe itself
			all.add(family.GetName(), nil)
		}
	}
	// Of cmd/edgehub-controller, which cannot be imported: test/integration/controller and deploy wait for it.
	all.add("edgehub_controller_leader", nil)
	return all
}

var descPattern = regexp.MustCompile(`fqName: "([^"]+)".*constLabels: \{([^}]*)\}, variableLabels: \{([^}]*)\}`)

// parts reads a Desc, which only describes itself in words.
func parts(t *testing.T, d *prometheus.Desc) (name string, labels []string) {
	t.Helper()
	m := descPattern.FindStringSubmatch(d.String())
	if m == nil {
		t.Fatalf("cannot read %s", d)
	}
	for label := range strings.SplitSeq(m[2]+","+m[3], ",") {
		if name, _, _ := strings.Cut(label, "="); name != "" {
			labels = append(labels, name)
		}
	}
	return m[1], labels
}

func hubRegistry(t *testing.T) *prometheus.Registry {
	t.Helper()
	dir := t.TempDir()
	options := config.NewOptions()
	flags := pflag.NewFlagSet("hub", pflag.ContinueOnError)
	options.AddFlags(flags)
	if err := flags.Parse([]string{"--node-name=n", "--kubeconfig=" + filepath.Join(dir, "own"), "--bootstrap-file=" + writeKubeconfig(t), "--root-dir=" + dir,
		"--bind-address=127.67.0.1", "--bind-proxy-address=127.67.0.1", "--proxy-port=10261"}); err != nil { // an address where no other hub is
		t.Fatal(err)
	}
	c, err := options.Config()
	if err != nil {
		t.Fatal(err)
	}
	registry := newRegistry()
	h, err := hub.New(c, "test", registry, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return registry
}

// writeKubeconfig names an apiserver that nobody reaches.
func writeKubeconfig(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	const text = `{"apiVersion":"v1","kind":"Config","current-context":"x","contexts":[{"name":"x","context":{"cluster":"x","user":"x"}}],
		"clusters":[{"name":"x","cluster":{"server":"https://127.0.0.1:1"}}],"users":[{"name":"x","user":{"token":"x"}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func controllerRegistry(t *testing.T) *prometheus.Registry {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "https://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	registry := newRegistry()
	if _, err := controller.New(client, controller.Options{Registerer: registry}); err != nil {
		t.Fatal(err)
	}
	return registry
}

// newRegistry has what the programs' main functions add.
func newRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}
