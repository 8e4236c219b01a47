// Package controller_test runs the controller against a real apiserver and a
// real controller manager, as the ServiceAccount of deploy/ and with its rights:
// a rule that is missing there fails these tests.
//
// Nodes are objects without a kubelet. Pods are bound to them and stay Pending,
// which is all the controller looks at; a test that wants a pod gone deletes it
// without grace. The tests share a cluster and do not run in parallel, since each
// controller sees every DaemonSet.
package controller_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/controller"
	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/rolloutenv"
	"github.com/edgehub-io/edgehub/test/internal/testmain"
)

const (
	systemNamespace = "edgehub-system" // as in deploy/
	nodes           = 3                // and so many pods each DaemonSet has
	moduleRoot      = "../../.."       // the product's, seen from this folder
)

// env is what all tests share.
var env struct {
	*rolloutenv.Env
	binary string // edgehub-controller
}

func TestMain(m *testing.M) { os.Exit(testmain.Main(m, "controller", prepare)) }

func prepare(ctx context.Context, s *testmain.Env) (err error) {
	if env.binary, err = s.Build(ctx, moduleRoot, "edgehub-controller"); err != nil {
		return err
	}
	c, err := s.StartCluster(ctx, cluster.Options{})
	if err != nil {
		return err
	}
	if env.Env, err = rolloutenv.New(ctx, c, moduleRoot); err != nil {
		return err
	}
	for i := range nodes {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node%d", i+1)}}
		node.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: many}
		node.Status.Capacity = node.Status.Allocatable
		if _, err := env.Admin.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// start runs a controller until the end of the test.
func start(t *testing.T) *rolloutenv.Controller {
	t.Helper()
	return env.StartController(t, controller.Options{}, nil)
}
