package plugin

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// TestTheKubectlOfATestClusterFindsPlugins runs the script that edgehub-cluster gives to
// people. A plugin gets the arguments behind its name and the environment, and nothing
// else: whatever selects the cluster for kubectl has to reach the plugin as well.
func TestTheKubectlOfATestClusterFindsPlugins(t *testing.T) {
	f := newDaemonSet(t)
	runController(t)
	kubectl(t, "wait", "-n="+f.Namespace, "--for=condition=RolloutComplete", "--timeout=60s", "ds/web").expect(t, 0, "condition met")
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), env.cluster.KubectlPath(), args...)
		cmd.Env = append(os.Environ(), "PATH="+env.pluginDir+":"+os.Getenv("PATH"), "KUBECONFIG=/nowhere", "GORACE=atexit_sleep_ms=0")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	if out := run("edgehub", "status", "ds/web", "-n="+f.Namespace); !strings.Contains(out, "daemonset.apps/web in "+f.Namespace) {
		t.Errorf("kubectl edgehub status:\n%s", out)
	}
	if out := run("get", "ds/web", "-n="+f.Namespace, "-o=name"); out != "daemonset.apps/web\n" {
		t.Errorf("kubectl get: %q", out)
	}
}

// kubectl has the plugin complete the arguments of kubectl edgehub. The plugin waits two
// seconds for the apiserver, which a busy machine may exceed: hence the attempts.
func TestKubectlCompletesThePluginsArguments(t *testing.T) {
	f := newDaemonSet(t)
	const want = "ds/web\n:4\n" // 4: no names of files
	poll.Eventually(t, "kubectl completes the DaemonSet", func() bool {
		got := kubectl(t, "__complete", "edgehub", "--namespace="+f.Namespace, "status", "ds/")
		if got.out != want {
			t.Logf("got %q and %q, exit code %d; want %q", got.out, got.err, got.code, want)
		}
		return got.out == want
	})
}
