package controller_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/edgehub-io/edgehub/test/internal/freeport"
	"github.com/edgehub-io/edgehub/test/internal/hubproc"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// replica is edgehub-controller as a process.
type replica struct {
	t      *testing.T
	cmd    *exec.Cmd
	addr   string          // metrics and probes
	output bytes.Buffer    // to be read when the process has exited
	exited <-chan struct{} // closed when the process is reaped and its state is set
}

// startReplica starts one with short leases. It is killed at the end of the test.
func startReplica(t *testing.T, args ...string) *replica {
	t.Helper()
	r := &replica{t: t, addr: freeport.Address(t)}
	r.cmd = exec.Command(env.binary, append([]string{
		"--kubeconfig=" + env.Kubeconfig(t),
		"--metrics-addr=" + r.addr, "--health-probe-addr=" + r.addr,
		"--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=500ms",
	}, args...)...)
	r.cmd.Stderr = &r.output
	var err error
	if r.exited, err = hubproc.StartAndWait(r.cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.signal(syscall.SIGKILL)
		<-r.exited
		if t.Failed() {
			t.Logf("replica %s wrote:\n%s", r.addr, &r.output)
		}
	})
	return r
}

// signal is for a process that may have ended.
func (r *replica) signal(s os.Signal) { _ = r.cmd.Process.Signal(s) }

// code waits for the end of the process.
func (r *replica) code() int {
	r.t.Helper()
	select {
	case <-r.exited:
	case <-time.After(poll.Patience):
		r.t.Fatalf("not within %s: the process has ended", poll.Patience)
	}
	return r.cmd.ProcessState.ExitCode()
}

// get returns status and body; 0 when it does not answer.
func (r *replica) get(path string) (int, string) {
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, "http://"+r.addr+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return 0, ""
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, ""
	}
	return response.StatusCode, string(body)
}

func (r *replica) leads() bool {
	_, metrics := r.get("/metrics")
	return strings.Contains(metrics, "edgehub_controller_leader 1\n")
}

func (r *replica) healthy() bool {
	health, _ := r.get("/healthz")
	ready, _ := r.get("/readyz")
	return health == http.StatusOK && ready == http.StatusOK
}

func lease(t *testing.T) *coordinationv1.Lease {
	t.Helper()
	l, err := env.Admin.CoordinationV1().Leases(systemNamespace).Get(t.Context(), "edgehub-controller", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// freshLease removes what an earlier test left.
func freshLease(t *testing.T) {
	t.Helper()
	err := env.Admin.CoordinationV1().Leases(systemNamespace).Delete(context.WithoutCancel(t.Context()), "edgehub-controller", metav1.DeleteOptions{})
	if err != nil && !strings.Contains(err.Error(), "not found") {
		t.Fatal(err)
	}
}

// startPair starts a leader, and one that waits.
func startPair(t *testing.T) (leader, follower *replica) {
	t.Helper()
	freshLease(t)
	leader = startReplica(t)
	poll.Eventually(t, "the first replica leads", leader.leads)
	follower = startReplica(t)
	poll.Eventually(t, "both are healthy and ready", func() bool { return leader.healthy() && follower.healthy() })
	if follower.leads() {
		t.Fatal("both replicas lead")
	}
	return leader, follower
}

func TestTheOtherReplicaTakesOverFromAKilledLeader(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: "OTA"})
	leader, follower := startPair(t)
	f.await(map[string]int{upToDate: nodes})
	leader.signal(syscall.SIGKILL)
	leader.code()
	f.SetImage("app:2")
	f.await(map[string]int{needsOne: nodes})
	if !follower.leads() {
		t.Error("the pods were marked, but not by the other replica")
	}
}

func TestReplicasThatAreToldToStop(t *testing.T) {
	leader, follower := startPair(t)
	follower.signal(os.Interrupt)
	if code := follower.code(); code != 0 || !leader.leads() {
		t.Errorf("a follower has exit code %d after an interrupt, and the leader leads: %t", code, leader.leads())
	}
	leader.signal(syscall.SIGTERM)
	if code := leader.code(); code != 0 {
		t.Errorf("the leader has exit code %d after SIGTERM", code)
	}
	// A lease that was released names nobody.
	if l := lease(t); l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != "" {
		t.Errorf("the lease still names %s", *l.Spec.HolderIdentity)
	}
}

// One that cannot renew must not go on, since another may lead by now.
func TestALeaderThatLosesItsLeaseEnds(t *testing.T) {
	freshLease(t)
	leader := startReplica(t)
	poll.Eventually(t, "it leads", leader.leads)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { // it is renewed meanwhile
		l := lease(t)
		other := "another"
		l.Spec.HolderIdentity = &other
		_, err := env.Admin.CoordinationV1().Leases(systemNamespace).Update(t.Context(), l, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if code := leader.code(); code != 1 || !strings.Contains(leader.output.String(), "lease could not be renewed") {
		t.Errorf("exit code %d, want 1 and the reason", code)
	}
	freshLease(t)
}

func TestWithoutElectionItWorksAtOnce(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: "OTA"})
	r := startReplica(t, "--leader-elect=false")
	f.await(map[string]int{upToDate: nodes})
	for _, pod := range f.pods() {
		for _, entry := range pod.ManagedFields {
			if entry.Manager == "edgehub-controller" && entry.Subresource != "status" {
				t.Errorf("pod %s was changed through %q, want status", pod.Name, entry.Subresource)
			}
		}
	}
	r.signal(syscall.SIGTERM)
	if code := r.code(); code != 0 {
		t.Errorf("exit code %d after SIGTERM, want 0", code)
	}
}

func TestCommandLineMistakesAreExplained(t *testing.T) {
	tests := map[string]struct {
		args []string
		code int
		want string
	}{
		"a wrong value":      {[]string{"--workers=0"}, 2, "--workers=0"},
		"no such kubeconfig": {[]string{"--kubeconfig=/nonexistent"}, 1, "--kubeconfig"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := startReplica(t, tt.args...)
			if code := r.code(); code != tt.code || !strings.Contains(r.output.String(), tt.want) {
				t.Errorf("exit code %d and %q, want %d and %s", code, r.output.String(), tt.code, tt.want)
			}
		})
	}
}
