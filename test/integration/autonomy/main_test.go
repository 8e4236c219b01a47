// Package autonomy takes nodes away for longer than pods tolerate, with a real apiserver, scheduler and
// controller manager: the node lifecycle controller taints the nodes, taint eviction deletes pods, and the
// controllers of Deployments and StatefulSets make others. Kubelets are played.
//
// The apiserver gives pods tolerations of 3 s, in place of 300. edgehub-controller runs with the rights
// of deploy/, which deploy/admission narrows.
package autonomy

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/controller"
	"github.com/edgehub-io/edgehub/controller/autonomy"
	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/audit"
	"github.com/edgehub-io/edgehub/test/internal/fleet"
	"github.com/edgehub-io/edgehub/test/internal/testmain"
)

const (
	// toleration is for how many seconds pods tolerate that their node is away, by default.
	toleration = "3"
	// played is the label of pods that the fleet plays.
	played = "played"
	// selected is a label of nodes that --autonomy-selector selects, for selectedFor.
	selected    = "selected"
	selectedFor = "7200"
)

var env struct {
	cluster *cluster.Cluster
	admin   *kubernetes.Clientset
	account *rest.Config // of edgehub-controller
	record  *audit.Log   // of what the controller writes
	fleet   *fleet.Fleet
}

func TestMain(m *testing.M) {
	testmain.AtOnce(8) // they wait
	os.Exit(testmain.Main(m, "autonomy", prepare))
}

func prepare(ctx context.Context, s *testmain.Env) (err error) {
	const user = "system:serviceaccount:edgehub-system:" + controller.Name
	if env.record, err = audit.NewAnswered(filepath.Join(s.Dir, "audit"),
		"- {level: Metadata, users: ['"+user+"'], verbs: [patch], resources: [{group: '', resources: [pods, nodes/status]}]}\n- {level: None}\n"); err != nil {
		return err
	}
	env.cluster, err = s.StartCluster(ctx, cluster.Options{
		APIServerArgs: append(env.record.Args(),
			"--default-not-ready-toleration-seconds="+toleration, "--default-unreachable-toleration-seconds="+toleration),
		ControllerManagerArgs: []string{
			// Nodes are away when a test has them so, and not because the machine is busy, or nobody plays them.
			"--node-monitor-grace-period=2h",
			// Most nodes are away at a time, for which Kubernetes would stop evictions.
			"--unhealthy-zone-threshold=1", "--node-eviction-rate=100",
		},
	})
	if err != nil {
		return err
	}
	config := env.cluster.AdminConfig()
	config.QPS = -1
	if env.admin, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if _, err := env.cluster.Kubectl(ctx, "apply", "-k", filepath.Join("..", "..", "..", "deploy")); err != nil {
		return err
	}
	for _, file := range []string{"controller.yaml", "controller-binding.yaml"} { // what narrows its rights
		if _, err := env.cluster.Kubectl(ctx, "apply", "-f", filepath.Join("..", "..", "..", "deploy", "admission", file)); err != nil {
			return err
		}
	}
	if _, err := env.cluster.Kubectl(ctx, "-n", "edgehub-system", "delete", "deployment", "--all"); err != nil {
		return err // its pods would run on the played nodes
	}
	token, err := env.admin.CoreV1().ServiceAccounts("edgehub-system").CreateToken(ctx, controller.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	env.account = rest.AnonymousClientConfig(config)
	env.account.BearerToken, env.account.QPS = token.Status.Token, -1
	env.fleet = fleet.New(env.admin, fleet.Options{PodSelector: played})
	s.Play(ctx, env.fleet)
	return env.fleet.AddNode(ctx, spare, nil)
}

// run is a controller that runs.
type run struct {
	metrics *prometheus.Registry
	stop    func()
}

// startController runs one until it is stopped, or the test ends.
func startController(t *testing.T) *run {
	t.Helper()
	client, err := kubernetes.NewForConfig(env.account)
	if err != nil {
		t.Fatal(err)
	}
	r := &run{metrics: prometheus.NewRegistry()}
	c, err := controller.New(client, controller.Options{
		Autonomy: &autonomy.Fleet{Selector: labels.SelectorFromSet(labels.Set{selected: ""}), Selected: autonomy.For(2 * hour), DefaultSeconds: 3},
		Logger:   slog.New(slog.NewTextHandler(t.Output(), nil)), Registerer: r.metrics,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := c.Run(ctx); err != nil {
			t.Errorf("run the controller: %v", err)
		}
	}()
	r.stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(r.stop)
	return r
}
