// Package autonomy takes nodes away for longer than pods tolerate, with a real apiserver, scheduler and
// controller manager: the node lifecycle controller taints the nodes, taint eviction deletes pods, and the
// controllers of Deployments and StatefulSets make others. Kubelets are played.
//
// The apiserver gives pods tolerations of 3 s, in place of 300. edgehub-controller runs with the rights
// of deploy/, which deploy/admission narrows.
package autonomy

import (
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/controller"
	"github.com/edgehub-io/edgehub/controller/autonomy"
	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/audit"
	"github.com/edgehub-io/edgehub/test/internal/fleet"
	"github.com/edgehub-io/edgehub/test/internal/freeport"
	"github.com/edgehub-io/edgehub/test/internal/hubproc"
	"github.com/edgehub-io/edgehub/test/internal/metric"
	"github.com/edgehub-io/edgehub/test/internal/rolloutenv"
	"github.com/edgehub-io/edgehub/test/internal/testmain"
)

const (
	// moduleRoot is the product's, seen from this folder.
	moduleRoot = "../../.."
	// toleration is for how many seconds pods tolerate that their node is away, by default.
	toleration = "3"
	// played is the label of pods that the fleet plays.
	played = "played"
)

var env struct {
	cluster *cluster.Cluster
	admin   *kubernetes.Clientset
	record  *audit.Log // of what the controller writes
	fleet   *fleet.Fleet

	deployed *rolloutenv.Env
	binary   string // edgehub-controller
}

func TestMain(m *testing.M) {
	testmain.AtOnce(8) // they wait
	os.Exit(testmain.Main(m, "autonomy", prepare))
}

func prepare(ctx context.Context, s *testmain.Env) (err error) {
	if env.binary, err = s.Build(ctx, moduleRoot, "edgehub-controller"); err != nil {
		return err
	}
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
	if env.deployed, err = rolloutenv.New(ctx, env.cluster, moduleRoot); err != nil {
		return err
	}
	env.admin = env.deployed.Admin
	for _, file := range []string{"controller.yaml", "controller-binding.yaml", "controller-status.yaml", "controller-status-binding.yaml"} { // what narrows its rights
		if _, err := env.cluster.Kubectl(ctx, "apply", "-f", filepath.Join(moduleRoot, "deploy", "admission", file)); err != nil {
			return err
		}
	}
	if err := env.deployed.RemoveDeployment(ctx); err != nil {
		return err
	}
	env.fleet = fleet.New(env.admin, fleet.Options{PodSelector: played})
	s.Play(ctx, env.fleet)
	return env.fleet.AddNode(ctx, spare, nil)
}

// startController runs one until the test ends.
func startController(t *testing.T) {
	t.Helper()
	env.deployed.StartController(t, controller.Options{Autonomy: &autonomy.Fleet{Defaults: autonomy.Same(3)}}, nil)
}

// process is edgehub-controller as a process.
type process struct {
	t       *testing.T
	command *exec.Cmd
	exited  <-chan struct{} // closed once it has been waited for
	metrics string          // their URL
}

// startProcess starts one with short leases. It is killed at the end of the test.
func startProcess(t *testing.T, args ...string) *process {
	t.Helper()
	addr := freeport.Address(t)
	p := &process{t: t, metrics: "http://" + addr + "/metrics"}
	p.command = exec.Command(env.binary, append([]string{
		"--kubeconfig=" + env.deployed.Kubeconfig(t), "--default-toleration-seconds=" + toleration,
		"--metrics-addr=" + addr, "--health-probe-addr=" + addr,
		"--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=500ms",
	}, args...)...)
	p.command.Stderr = t.Output()
	var err error
	if p.exited, err = hubproc.StartAndWait(p.command); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return p
}

// kill ends it with SIGKILL, and returns when it has ended.
func (p *process) kill() {
	_ = p.command.Process.Kill() // it may have ended
	<-p.exited
}

// patched returns how many pods it has patched; 0 before it serves its metrics.
func (p *process) patched() int {
	p.t.Helper()
	select {
	case <-p.exited:
		p.t.Fatalf("the controller has ended: %v", p.command.ProcessState)
	default:
	}
	request, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.metrics, http.NoBody)
	if err != nil {
		p.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	n, _, err := metric.Sum(string(text), "edgehub_controller_autonomy_patches_total", `result="success"`)
	if err != nil {
		p.t.Fatal(err)
	}
	return int(n)
}
