package cluster_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/test/cluster"
)

func TestControlPlaneServesAndLeavesNoProcess(t *testing.T) {
	c := start(t, cluster.Options{Dir: t.TempDir(), Log: t.Output()})

	t.Run("a killed apiserver comes back with its data", func(t *testing.T) {
		client := clientFor(t, c.AdminConfig())
		kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}
		if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), kept, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := c.APIServer().Kill(); err != nil {
			t.Fatal(err)
		}
		if _, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{}); err == nil {
			t.Fatal("a killed apiserver answered")
		}
		if err := c.APIServer().Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("a frozen apiserver does not answer until it goes on", func(t *testing.T) {
		client := clientFor(t, c.AdminConfig())
		if err := c.APIServer().Freeze(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if _, err := client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{}); err == nil {
			t.Error("a frozen apiserver answered")
		}
		if err := c.APIServer().Cont(); err != nil {
			t.Fatal(err)
		}
		if _, err := client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("a second cluster in the same folder is refused", func(t *testing.T) {
		_, err := cluster.Start(t.Context(), cluster.Options{Dir: c.Dir()})
		if err == nil || !strings.Contains(err.Error(), "runs in "+c.Dir()) {
			t.Fatalf("error = %v", err)
		}
		if _, err := os.Stat(c.Kubeconfig()); err != nil {
			t.Fatalf("the refused start harmed the running cluster: %v", err)
		}
	})

	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	expectNoProcess(t, c.Dir())
	if _, err := os.Stat(filepath.Join(c.LogDir(), "kube-apiserver.log")); err != nil {
		t.Errorf("the logs must stay: %v", err)
	}
	if _, err := os.Stat(filepath.Join(c.Dir(), "etcd")); !os.IsNotExist(err) {
		t.Errorf("the state of etcd must not stay: %v", err)
	}
}

func TestStartThatFailsTakesEverythingDownAndSaysWhy(t *testing.T) {
	t.Run("a component that ends at once", func(t *testing.T) {
		dir := t.TempDir()
		_, err := cluster.Start(t.Context(), cluster.Options{Dir: dir, KubernetesBin: brokenBinaries(t, "kube-apiserver")})
		if err == nil || !strings.Contains(err.Error(), "kube-apiserver") || !strings.Contains(err.Error(), "broken on purpose") {
			t.Errorf("error = %v; want the component and the end of its log", err)
		}
		expectNoProcess(t, dir)
	})
	t.Run("a context that ends meanwhile", func(t *testing.T) {
		dir := t.TempDir()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := cluster.Start(ctx, cluster.Options{Dir: dir}); err == nil {
			t.Error("a control plane was up within a second, or the context was ignored")
		}
		expectNoProcess(t, dir)
	})
	t.Run("nodes without a hub", func(t *testing.T) {
		_, err := cluster.Start(t.Context(), cluster.Options{Nodes: 1})
		if err == nil || !strings.Contains(err.Error(), "HubBin") {
			t.Errorf("error = %v; want it to name HubBin", err)
		}
	})
}

// start starts a cluster that ends with the test at the latest.
func start(t *testing.T, o cluster.Options) *cluster.Cluster {
	t.Helper()
	c, err := cluster.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// brokenBinaries is a folder of components of which one fails.
func brokenBinaries(t *testing.T, broken string) string {
	t.Helper()
	binary, err := cluster.BuildKubernetes(t.Context(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"} {
		script := "#!/bin/sh\nexec " + binary + " " + name + " \"$@\"\n"
		if name == broken {
			script = "#!/bin/sh\necho broken on purpose\nexit 1\n"
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// clientFor has connections of its own, closed with the test.
func clientFor(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	clientset, err := kubernetes.NewForConfigAndClient(config, client)
	if err != nil {
		t.Fatal(err)
	}
	return clientset
}

// expectNoProcess fails when a process lives that has the folder in its
// command line; every component has.
func expectNoProcess(t *testing.T, dir string) {
	t.Helper()
	out, err := exec.Command("ps", "-eo", "pid,stat,args").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, dir) {
			t.Errorf("left behind: %s", line)
		}
	}
}
