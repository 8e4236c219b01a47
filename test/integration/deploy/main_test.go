// Package deploy tests what deploy/ installs: its manifests and its chart in a real
// apiserver that checks every field and enforces Pod Security, the rights in it one
// by its alerts and dashboard against what hub and controller really tell.
//
// Nodes are played by package fleet. The tests share a cluster and run one after the
// other, since a controller sees every DaemonSet.
package deploy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/test/audit"
	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/fleet"
)

const (
	// moduleRoot is the product's, seen from this folder.
	moduleRoot = "../../.."
	// patience is how long something may take; it is only spent when something is
	// wrong.
	patience = 30 * time.Second

	// What deploy/ says.
	systemNamespace = "edgehub-system"
	account         = "edgehub-controller"
	username        = "system:serviceaccount:" + systemNamespace + ":" + account
)

// env is what all tests share.
var env struct {
	cluster    *cluster.Cluster
	admin      *kubernetes.Clientset
	record     *audit.Log // of what the controller asks
	fleet      *fleet.Fleet
	controller string // edgehub-controller
}

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute) // Kubernetes may have to be built
	defer cancel()
	dir, err := os.MkdirTemp("", "edgehub-deploy-test-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := build(ctx, dir); err != nil {
		return 1, err
	}
	if env.record, err = audit.NewAnswered(filepath.Join(dir, "audit"),
		"- {level: Metadata, users: ['"+username+"']}\n- {level: None}\n"); err != nil {
		return 1, err
	}
	env.cluster, err = cluster.Start(ctx, cluster.Options{Dir: filepath.Join(dir, "cluster"), Log: os.Stderr,
		// Older apiservers do not stream lists, and client-go does not list where
		// they do: the right to list would never be used.
		APIServerArgs: append(env.record.Args(), "--feature-gates=WatchList=false")})
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, env.cluster.Stop()) }()
	if env.admin, err = kubernetes.NewForConfig(env.cluster.AdminConfig()); err != nil {
		return 1, err
	}
	// The controller's own pods are not played: no kubelet could.
	env.fleet = fleet.New(env.admin, fleet.Options{Log: os.Stderr, PodSelector: "app.kubernetes.io/name!=" + account})
	playing, stop := context.WithCancel(ctx)
	ended := make(chan error, 1) // one result
	go func() { ended <- env.fleet.Run(playing) }()
	defer func() { stop(); err = errors.Join(err, <-ended) }()
	if err := env.fleet.AddNode(ctx, "n1", nil); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

func build(ctx context.Context, dir string) error {
	env.controller = filepath.Join(dir, "edgehub-controller")
	cmd := exec.CommandContext(ctx, "go", "build", "-tags=grpcnotrace", "-o", env.controller, "./cmd/edgehub-controller")
	cmd.Dir = moduleRoot
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build edgehub-controller: %w: %s", err, out)
	}
	return nil
}

// eventually polls until check has nothing to say, and fails with what it said last.
func eventually(t *testing.T, what string, check func() string) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		said := check()
		if said == "" {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("after %v it is still not so that %s: %s", patience, what, said)
		case <-tick.C:
		}
	}
}

func words(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

// get returns a page of a program on this machine, "" when it does not answer.
func get(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	res, err := client.Do(req)
	if err != nil {
		return ""
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return ""
	}
	return string(body)
}
