// Package deploy tests what deploy/ installs: its manifests and its chart in a real
// apiserver that checks every field and enforces Pod Security, and the rights in it one
// by one against what the controller asks for.
//
// Nodes are played by package fleet. The tests share a cluster and run one after the
// other, since a controller sees every DaemonSet.
package deploy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/audit"
	"github.com/edgehub-io/edgehub/test/internal/fleet"
	"github.com/edgehub-io/edgehub/test/internal/poll"
	"github.com/edgehub-io/edgehub/test/internal/testmain"
)

const (
	// moduleRoot is the product's, seen from this folder.
	moduleRoot = "../../.."

	// As in deploy/.
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

func TestMain(m *testing.M) { os.Exit(testmain.Main(m, "deploy", prepare)) }

func prepare(ctx context.Context, s *testmain.Env) (err error) {
	if env.controller, err = s.Build(ctx, moduleRoot, "edgehub-controller"); err != nil {
		return err
	}
	if env.record, err = audit.NewAnswered(filepath.Join(s.Dir, "audit"),
		"- {level: Metadata, users: ['"+username+"']}\n- {level: None}\n"); err != nil {
		return err
	}
	env.cluster, err = s.StartCluster(ctx, cluster.Options{
		// Older apiservers do not stream lists, and client-go does not list where
		// they do: the right to list would never be used.
		APIServerArgs: append(env.record.Args(), "--feature-gates=WatchList=false")})
	if err != nil {
		return err
	}
	if env.admin, err = kubernetes.NewForConfig(env.cluster.AdminConfig()); err != nil {
		return err
	}
	// The controller's own pods are not played: no kubelet could.
	env.fleet = fleet.New(env.admin, fleet.Options{Log: os.Stderr, PodSelector: "app.kubernetes.io/name!=" + account})
	s.Play(ctx, env.fleet)
	return env.fleet.AddNode(ctx, "n1", nil)
}

// eventually polls until check returns no problem, and fails with the last one. It does so in a cleanup, too.
func eventually(t *testing.T, what string, check func() string) {
	t.Helper()
	poll.Check(context.WithoutCancel(t.Context()), t, what, func(context.Context) error {
		if said := check(); said != "" {
			return errors.New(said)
		}
		return nil
	})
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
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: poll.Patience}
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
