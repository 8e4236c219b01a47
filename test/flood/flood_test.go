package flood

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/edgehub-io/edgehub/test/internal/freeport"
	"github.com/edgehub-io/edgehub/test/internal/metric"
	"github.com/edgehub-io/edgehub/test/internal/poll"
	"github.com/edgehub-io/edgehub/test/internal/rawclient"
)

// refused is which part of others' requests may fail during a flood.
const refused = 0.01

const configMaps = "/api/v1/namespaces/%s/configmaps"

// TestFloods has a pod and a user of the node flood the hub, each in every way at once; and then the user the
// node's API ("api"), and root of a pod on the host's network the ports for pods and programs ("root").
func TestFloods(t *testing.T) {
	pod, onHost := startPod(t, "flood", false), startPod(t, "flood-on-host", true)
	bad, good := newAccounts(t, "flooding", 3), newAccounts(t, "quiet", 1)
	hub := limitMemory(t)
	before := nodeReady(t)
	poll.Eventually(t, "kubelet has made its Lease", func() bool {
		_, err := env.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), env.node.Name(), metav1.GetOptions{})
		return err == nil
	})
	v := newVictims(t, good[0])
	for _, kind := range []string{"chains", "idle", "headers", "descriptors", "watches", "refused", "api", "root"} {
		t.Run(kind, func(t *testing.T) {
			secure, plain := env.node.Addr()+":10268", env.node.Addr()+":10261"
			a := attack{Kind: kind, Tokens: bad, Path: fmt.Sprintf(configMaps, "flooding")}
			programs := 1
			end := []func(){}
			switch kind {
			case "api":
				programs, end = 0, append(end, asUser(t, attack{Kind: kind, Plain: strings.TrimPrefix(env.node.APIURL(), "http://")}))
			case "root":
				programs, end = 0, append(end, onHost.run(t, attack{Kind: "idle", At: podAddress + ":10268"}), onHost.run(t, attack{Kind: "refused", At: secure}))
			case "descriptors": // a million, of each attacker
				var limit syscall.Rlimit
				if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
					t.Fatal(err)
				}
				programs = max(1, 1<<20/int(min(limit.Max, 1<<20)))
			}
			for range programs {
				a.At, a.Plain = podAddress+":10268", ""
				end = append(end, pod.run(t, a))
				a.At, a.Plain = secure, plain
				end = append(end, asUser(t, a))
			}
			v.measure(t, hub, kind)
			for _, stop := range end {
				stop()
			}
		})
	}
	if now := nodeReady(t); !now.Equal(&before) {
		t.Errorf("the node was Ready since %v, and now since %v", before, now)
	}
}

// nodeReady returns since when the node is Ready.
func nodeReady(t *testing.T) metav1.Time {
	t.Helper()
	node, err := env.client.CoreV1().Nodes().Get(t.Context(), env.node.Name(), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime
		}
	}
	t.Fatalf("the node is not Ready: %+v", node.Status.Conditions)
	return metav1.Time{}
}

// realPod is a pod with a container that runs, by one process of it.
type realPod struct{ pid int }

func startPod(t *testing.T, name string, onHost bool) realPod {
	t.Helper()
	pods := env.client.CoreV1().Pods("default")
	grace := int64(1)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		NodeName: env.node.Name(), HostNetwork: onHost, TerminationGracePeriodSeconds: &grace,
		Containers: []corev1.Container{{Name: "app", Image: env.Image("v1"), Args: []string{fmt.Sprintf("-listen=:%d", freeport.On127(t))}}},
	}}
	poll.Eventually(t, "the pod is created", func() bool { // its service account may not be there yet
		_, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
		return err == nil
	})
	var id string
	poll.Eventually(t, "the pod runs", func() bool {
		now, err := pods.Get(t.Context(), pod.Name, metav1.GetOptions{})
		if err != nil || len(now.Status.ContainerStatuses) == 0 || now.Status.ContainerStatuses[0].State.Running == nil {
			return false
		}
		_, id, _ = strings.Cut(now.Status.ContainerStatuses[0].ContainerID, "://")
		return true
	})
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range groups {
		if content, _ := os.ReadFile(file); strings.Contains(string(content), id) {
			pid, err := strconv.Atoi(strings.Split(file, "/")[2])
			if err != nil {
				t.Fatal(err)
			}
			return realPod{pid}
		}
	}
	t.Fatalf("no process is in the control group of container %s", id)
	return realPod{}
}

// run starts an attacker with the pod's network and control groups, as root, and returns what
// ends it.
func (p realPod) run(t *testing.T, a attack) (stop func()) {
	t.Helper()
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", p.pid))
	if err != nil {
		t.Fatal(err)
	}
	enter := "" // a shell's commands
	for line := range strings.Lines(string(content)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3) // ID, controllers, group
		mount := "/sys/fs/cgroup/" + strings.TrimPrefix(fields[1], "name=")
		if fields[1] == "" {
			mount = "/sys/fs/cgroup"
			if _, err := os.Stat("/sys/fs/cgroup/unified"); err == nil {
				mount = "/sys/fs/cgroup/unified"
			}
		}
		enter += fmt.Sprintf("echo $$ >%s/cgroup.procs\n", filepath.Join(mount, fields[2]))
	}
	return start(t, a, exec.Command("sh", "-euc", enter+fmt.Sprintf("exec nsenter --net=/proc/%d/ns/net -- %s", p.pid, program(t))))
}

// asUser starts an attacker as a user of the node, with as much of the CPU as systemd gives all
// users, and returns what ends it.
func asUser(t *testing.T, a attack) (stop func()) {
	t.Helper()
	group := share(t, "user", 1024)
	return start(t, a, exec.Command("sh", "-euc", fmt.Sprintf("echo $$ >%s/cgroup.procs\nexec setpriv --reuid=65534 --regid=65534 --clear-groups %s", group, program(t))))
}

// share returns the folder of a control group with so much of the CPU, in shares of version 1. As with
// systemd, system.slice, which the hub is in, and user.slice have as much as each other; the node's pods
// are in a third. What is not on a node, the control plane and the test, has as much as it needs.
func share(t *testing.T, name string, shares int) string {
	t.Helper()
	group := "/sys/fs/cgroup/cpu/edgehub/" + name
	if err := os.MkdirAll(group, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(group, "cpu.shares"), []byte(strconv.Itoa(shares)), 0o644); err != nil {
		t.Fatal(err)
	}
	return group
}

// program is this test's, where other users may read it.
func program(t *testing.T) string {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "attacker")
	content, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(copied, content, 0o755); err != nil {
		t.Fatal(err)
	}
	for dir := filepath.Dir(copied); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return copied
}

// start returns when the attack has begun.
func start(t *testing.T, a attack, cmd *exec.Cmd) (stop func()) {
	t.Helper()
	order, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), attackVariable+"="+string(order), "GOMAXPROCS=1")
	cmd.Stderr = os.Stderr
	// A signal at the test's end is not enough: a process that takes another user gets none.
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	stop = func() {
		if !ended {
			ended = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // killed
		}
	}
	t.Cleanup(stop)
	lines := bufio.NewScanner(out)
	want := a.Kind
	if a.Kind == "descriptors" {
		want = "full"
	}
	for lines.Scan() {
		if lines.Text() == want {
			return stop
		}
	}
	t.Fatalf("attacker %s did not begin", a.Kind)
	return nil
}

// newAccounts makes a namespace with service accounts that may read its ConfigMaps, and returns
// their tokens.
func newAccounts(t *testing.T, namespace string, n int) (tokens []string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	create := metav1.CreateOptions{}
	meta := metav1.ObjectMeta{Name: "reader"}
	_, err := env.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, create)
	must(err)
	_, err = env.client.RbacV1().Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}},
	}}, create)
	must(err)
	_, err = env.client.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects: []rbacv1.Subject{{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "system:serviceaccounts:" + namespace}},
	}, create)
	must(err)
	for i := range n {
		name := fmt.Sprint("reader", i)
		accounts := env.client.CoreV1().ServiceAccounts(namespace)
		_, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, create)
		must(err)
		token, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, create)
		must(err)
		tokens = append(tokens, token.Status.Token)
	}
	return tokens
}

// limited is the hub with its memory limited.
type limited struct{ group, usage string }

// limitMemory puts the hub into a control group with the memory of its unit.
func limitMemory(t *testing.T) limited {
	t.Helper()
	group, limit, usage := "/sys/fs/cgroup/memory/edgehub/hub", "memory.limit_in_bytes", "memory.max_usage_in_bytes"
	if _, err := os.Stat("/sys/fs/cgroup/memory"); err != nil {
		group, limit, usage = "/sys/fs/cgroup/edgehub/hub", "memory.max", "memory.peak"
	}
	if err := os.MkdirAll(group, 0o755); err != nil {
		t.Fatal(err)
	}
	for file, value := range map[string]int{limit: memoryLimit, "cgroup.procs": env.node.HubProcess().PID()} {
		if err := os.WriteFile(filepath.Join(group, file), []byte(strconv.Itoa(value)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	share(t, "", 2048)
	if err := os.WriteFile(filepath.Join(share(t, "hub", 1024), "cgroup.procs"), []byte(strconv.Itoa(env.node.HubProcess().PID())), 0o644); err != nil {
		t.Fatal(err)
	}
	return limited{group, usage}
}

// peak is the most that it had, in MB.
func (l limited) peak(t *testing.T) int {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(l.group, l.usage))
	if err != nil {
		t.Fatal(err)
	}
	bytes, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		t.Fatal(err)
	}
	return bytes >> 20
}

// victims are who reads while others flood.
type victims struct {
	node  *tls.Config // kubelet's
	quiet string      // a token of another namespace
}

func newVictims(t *testing.T, token string) *victims {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", env.node.NodeKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(config.CertFile, config.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	return &victims{
		node:  &tls.Config{RootCAs: rawclient.Roots(t, filepath.Join(env.node.HubDir(), "pki", "serving.crt")), Certificates: []tls.Certificate{pair}},
		quiet: token,
	}
}

// answers are those to one reader.
type answers struct {
	who    string
	took   []time.Duration // failed ones too
	failed int
	first  string // failure
}

// read asks every so often until ctx ends.
func (a *answers) read(ctx context.Context, every time.Duration, ask func(context.Context) error) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		began := time.Now()
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		err := ask(limit)
		cancel()
		a.took = append(a.took, time.Since(began))
		if err != nil {
			if a.failed++; a.failed == 1 {
				a.first = err.Error()
			}
		}
	}
}

func (a *answers) percentile(p float64) time.Duration {
	slices.Sort(a.took)
	return a.took[min(len(a.took)-1, int(p*float64(len(a.took))))]
}

func (a *answers) share() float64 { return float64(a.failed) / float64(len(a.took)) }

func (a *answers) String() string {
	return fmt.Sprintf("%s: %d requests, p50 %v, p99 %v, longest %v, %d failed %s", a.who, len(a.took),
		a.percentile(0.5).Round(time.Millisecond), a.percentile(0.99).Round(time.Millisecond), a.percentile(1).Round(time.Millisecond), a.failed, a.first)
}

// measure has the victims read for as long as a flood lasts, judges whether they got it, and logs how long it took.
func (v *victims) measure(t *testing.T, hub limited, kind string) {
	t.Helper()
	pid, changed := env.node.HubProcess().PID(), upstream(t, "edgehub_upstream_last_change_timestamp_seconds")
	ctx, cancel := context.WithTimeout(t.Context(), env.length)
	defer cancel()
	own := "/api/v1/nodes/" + env.node.Name()
	kept, quiet := rawclient.New(v.node, true), rawclient.New(&tls.Config{InsecureSkipVerify: true}, true) //nolint:gosec // it measures
	defer kept.CloseIdleConnections()
	defer quiet.CloseIdleConnections()
	all := []*answers{{who: "the node, on one connection"}, {who: "the node, on new connections"}, {who: "new programs of root at the plain port"}, {who: "another namespace"}, {who: "another namespace, on new connections"}, {who: "the node's Lease, written as kubelet does"}, {who: "the owner at the node's API"}}
	var running sync.WaitGroup
	running.Go(func() {
		all[0].read(ctx, 50*time.Millisecond, func(ctx context.Context) error { return get(ctx, kept, env.node.SecureURL()+own, "") })
	})
	running.Go(func() {
		all[1].read(ctx, 500*time.Millisecond, func(ctx context.Context) error {
			fresh := rawclient.New(v.node, true)
			defer fresh.CloseIdleConnections()
			return get(ctx, fresh, env.node.SecureURL()+own, "")
		})
	})
	running.Go(func() {
		all[2].read(ctx, time.Second, func(ctx context.Context) error {
			out, err := exec.CommandContext(ctx, "curl", "--silent", "--fail", "--output", "/dev/null", env.node.HubURL()+own).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	})
	running.Go(func() {
		all[3].read(ctx, 50*time.Millisecond, func(ctx context.Context) error {
			return get(ctx, quiet, "https://"+podAddress+":10268"+fmt.Sprintf(configMaps, "quiet"), v.quiet)
		})
	})
	running.Go(func() {
		all[4].read(ctx, 500*time.Millisecond, func(ctx context.Context) error {
			fresh := rawclient.New(&tls.Config{InsecureSkipVerify: true}, true) //nolint:gosec // it measures
			defer fresh.CloseIdleConnections()
			return get(ctx, fresh, "https://"+podAddress+":10268"+fmt.Sprintf(configMaps, "quiet"), v.quiet)
		})
	})
	running.Go(func() {
		all[5].read(ctx, 50*time.Millisecond, func(ctx context.Context) error { return renew(ctx, kept) })
	})
	running.Go(func() {
		all[6].read(ctx, 500*time.Millisecond, func(ctx context.Context) error { return get(ctx, http.DefaultClient, env.node.APIURL()+"/pods", "") })
	})
	running.Wait()
	for _, a := range all {
		t.Log(a)
	}
	t.Logf("the hub had %d MB of %d at most", hub.peak(t), memoryLimit>>20)
	for i, a := range all {
		if kind == "root" && i == 4 {
			continue // new connections of root's programs share a small part with the flood: docs/security.md, "What is not prevented"
		}
		if share := a.share(); share > refused {
			t.Errorf("%s: %.1f %% of the requests failed", a.who, share*100)
		}
	}
	if now := env.node.HubProcess().PID(); now != pid {
		t.Fatalf("the hub was process %d, and is %d: see %s", pid, now, env.node.HubProcess().LogFile())
	}
	if now := upstream(t, "edgehub_upstream_last_change_timestamp_seconds"); now != changed || upstream(t, "edgehub_upstream_up") != 1 {
		t.Errorf("the hub believed that the cloud was lost")
	}
}

// upstream reads a metric of the hub.
func upstream(t *testing.T, name string) float64 {
	t.Helper()
	res, err := http.Get(env.node.APIURL() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	value, found, err := metric.Sum(string(text), name)
	if err != nil || !found {
		t.Fatalf("%s: found %v, %v", name, found, err)
	}
	return value
}
