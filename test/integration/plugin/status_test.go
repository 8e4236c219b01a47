package plugin

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// A watch outlives the apiserver it watches.
func TestAWatchOutlivesTheAPIServer(t *testing.T) {
	f := newDaemonSet(t)
	runController(t)
	edgehub(t, "pause", "ds/web", "-n", f.Namespace).expect(t, 0, "paused")
	f.change("app:2")
	w := start(t, "status", "ds/web", "-n", f.Namespace, "-w")
	w.sees("paused: 0 of 4")
	if err := env.cluster.APIServer().Kill(); err != nil {
		t.Fatal(err)
	}
	if err := env.cluster.APIServer().Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	poll.Eventually(t, "the apiserver answers", func() bool {
		_, err := env.admin.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		return err == nil
	})
	edgehub(t, "resume", "ds/web", "-n", f.Namespace).expect(t, 0, "resumed")
	w.ends(0)
}

// The rights are those that the help names, and no more.
func TestFewRightsAreEnough(t *testing.T) {
	f := newDaemonSet(t)
	f.change("app:2")
	ns := "-n=" + f.Namespace
	kubectl(t, "create", "role", "watch-rollouts", ns, "--verb=get,list,watch", "--resource=daemonsets.apps,pods").expect(t, 0, "")
	kubectl(t, "create", "rolebinding", "watch-rollouts", ns, "--role=watch-rollouts", "--user=watcher").expect(t, 0, "")
	edgehub(t, "status", "ds/web", ns, "--as=watcher").expect(t, 2, "unknown: ", "Kubernetes counts 0 of 4 pods of the newest revision, and 4 available ones of any")
	edgehub(t, "pause", "ds/web", ns, "--as=watcher").expect(t, 1, "forbidden", "patch")

	kubectl(t, "create", "role", "steer-rollouts", ns, "--verb=get,patch", "--resource=daemonsets.apps").expect(t, 0, "")
	kubectl(t, "create", "rolebinding", "steer-rollouts", ns, "--role=steer-rollouts", "--user=helmsman").expect(t, 0, "")
	edgehub(t, "pause", "ds/web", ns, "--as=helmsman").expect(t, 0, "paused")
	edgehub(t, "resume", "ds/web", ns, "--as=helmsman").expect(t, 0, "resumed")

	edgehub(t, "status", "ds/web", ns, "--as=nobody").expect(t, 1, "forbidden", `"nobody"`)
	edgehub(t, "status", "ds/nobody", ns).expect(t, 1, `error: daemonsets.apps "nobody" not found`)
	edgehub(t, "status", "ds/web", "--server=https://127.0.0.1:1").expect(t, 1, "connection refused")
}
