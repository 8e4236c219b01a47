package controller_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/retry"

	"github.com/edgehub-io/edgehub/test/internal/freeport"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// replica is edgehub-controller as a process.
type replica struct {
	t      *testing.T
	cmd    *exec.Cmd
	addr   string // metrics and probes
	output *output
	exited chan struct{} // closed when the process is reaped and its state is set
}

// output is what a process writes. It is safe for concurrent use.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// startReplica starts one with short leases. It is killed at the end of the test.
func startReplica(t *testing.T, args ...string) *replica {
	t.Helper()
	r := &replica{t: t, addr: freeport.Address(t), output: &output{}, exited: make(chan struct{})}
	r.cmd = exec.Command(env.binary, append([]string{
		"--kubeconfig=" + writeKubeconfig(t),
		"--metrics-addr=" + r.addr, "--health-probe-addr=" + r.addr,
		"--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=500ms",
	}, args...)...)
	r.cmd.Stderr = r.output
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = r.cmd.Wait() // the state shows it
		close(r.exited)
	}()
	t.Cleanup(func() {
		r.signal(syscall.SIGKILL)
		<-r.exited
		if t.Failed() {
			t.Logf("replica %s wrote:\n%s", r.addr, r.output)
		}
	})
	return r
}

// signal is for a process that may have ended.
func (r *replica) signal(s os.Signal) { _ = r.cmd.Process.Signal(s) }

// code waits for the end of the process.
func (r *replica) code() int {
	r.t.Helper()
	ended := func() bool {
		select {
		case <-r.exited:
			return true
		default:
			return false
		}
	}
	poll.Eventually(r.t, "the process has ended", ended)
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

// writeKubeconfig has the rights of deploy/.
func writeKubeconfig(t *testing.T) string {
	t.Helper()
	const entry = "test"
	config := clientcmdapi.NewConfig()
	config.Clusters[entry] = &clientcmdapi.Cluster{Server: env.cluster.ServerURL(), CertificateAuthority: env.cluster.CAFile()}
	config.AuthInfos[entry] = &clientcmdapi.AuthInfo{Token: env.token}
	config.Contexts[entry] = &clientcmdapi.Context{Cluster: entry, AuthInfo: entry}
	config.CurrentContext = entry
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

func lease(t *testing.T) *coordinationv1.Lease {
	t.Helper()
	l, err := env.admin.CoordinationV1().Leases(systemNamespace).Get(t.Context(), "edgehub-controller", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// freshLease removes what an earlier test left.
func freshLease(t *testing.T) {
	t.Helper()
	err := env.admin.CoordinationV1().Leases(systemNamespace).Delete(context.WithoutCancel(t.Context()), "edgehub-controller", metav1.DeleteOptions{})
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

func TestALeaderThatIsToldToStopReleasesTheLease(t *testing.T) {
	leader, follower := startPair(t)
	leader.signal(syscall.SIGTERM)
	if code := leader.code(); code != 0 {
		t.Errorf("exit code %d after SIGTERM, want 0", code)
	}
	poll.Eventually(t, "the other replica leads", follower.leads)
	// A released lease names nobody and is valid for a second; an expired one
	// would have been counted as a transition as well, but after 4 s.
	follower.signal(syscall.SIGTERM)
	if code := follower.code(); code != 0 {
		t.Errorf("exit code %d after SIGTERM, want 0", code)
	}
	if l := lease(t); l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != "" {
		t.Errorf("the lease still names %s", *l.Spec.HolderIdentity)
	}
}

func TestAFollowerThatIsToldToStopEnds(t *testing.T) {
	leader, follower := startPair(t)
	follower.signal(os.Interrupt)
	if code := follower.code(); code != 0 {
		t.Errorf("exit code %d after an interrupt, want 0", code)
	}
	if !leader.leads() {
		t.Error("the leader no longer leads")
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
		_, err := env.admin.CoordinationV1().Leases(systemNamespace).Update(t.Context(), l, metav1.UpdateOptions{})
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
		"a wrong value":       {[]string{"--workers=0"}, 2, "--workers=0"},
		"no such kubeconfig":  {[]string{"--kubeconfig=/nonexistent"}, 1, "--kubeconfig"},
		"outside a cluster":   {[]string{"--kubeconfig="}, 1, "--kubeconfig"},
		"a port that is used": {[]string{"--metrics-addr=" + strings.TrimPrefix(env.cluster.ServerURL(), "https://")}, 1, "--metrics-addr"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := startReplica(t, tt.args...)
			if code := r.code(); code != tt.code || !strings.Contains(r.output.String(), tt.want) {
				t.Errorf("exit code %d and %q, want %d and %s", code, r.output, tt.code, tt.want)
			}
		})
	}
}
