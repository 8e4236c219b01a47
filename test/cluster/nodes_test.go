package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/test/cluster"
)

// TestClusterStartStopLeavesNothingBehind runs two clusters one after the other
// and compares the machine before and after.
func TestClusterStartStopLeavesNothingBehind(t *testing.T) {
	cluster.NeedRoot(t)
	hub := buildHub(t)
	dir := t.TempDir()
	before := takeInventory(t)
	for _, test := range []struct {
		name       string
		containerd map[string]cluster.ContainerdVersion // by node
	}{
		{"a first cluster", nil},
		{"a second one in the same folder, with other containerds", map[string]cluster.ContainerdVersion{
			"node1": cluster.Containerd17, "node2": cluster.Containerd2,
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := start(t, cluster.Options{
				Dir: dir, Nodes: 2, HubBin: hub, Log: t.Output(),
				Containerd: func(node string) cluster.ContainerdVersion { return test.containerd[node] },
			})
			t.Run("pods run on each node and answer", func(t *testing.T) { podsAnswer(t, c) })
			t.Run("the host reaches each containerd", func(t *testing.T) { containerdsAnswer(t, c, test.containerd) })
			if err := c.Stop(); err != nil {
				t.Error(err)
			}
			expectNoProcess(t, dir)
			before.compare(t, takeInventory(t))
		})
	}
}

func TestClusterWhoseStartFailsLeavesNothingBehind(t *testing.T) {
	cluster.NeedRoot(t)
	hub := buildHub(t)
	for name, options := range map[string]cluster.Options{
		"a kubelet that ends at once": {HubBin: hub, KubernetesBin: brokenBinaries(t, "kubelet")},
		"a hub that ends at once":     {HubBin: "/bin/false"},
	} {
		t.Run(name, func(t *testing.T) {
			before := takeInventory(t)
			options.Dir, options.Nodes, options.Log = t.TempDir(), 1, t.Output()
			if _, err := cluster.Start(t.Context(), options); err == nil || !strings.Contains(err.Error(), "start node1/") {
				t.Errorf("error = %v; want it to name the component of node1", err)
			}
			before.compare(t, takeInventory(t))
		})
	}
	t.Run("a context that ends while the node starts", func(t *testing.T) {
		before := takeInventory(t)
		ctx, cancel := context.WithCancel(t.Context())
		log := &watchedLog{text: "node1: hub and containerd are up", seen: cancel}
		if _, err := cluster.Start(ctx, cluster.Options{Dir: t.TempDir(), Nodes: 1, HubBin: hub, Log: log}); err == nil {
			t.Error("the start succeeded though its context had ended")
		}
		before.compare(t, takeInventory(t))
	})
}

// podsAnswer runs one pod per node and tries what goes through its kubelet.
func podsAnswer(t *testing.T, c *cluster.Cluster) {
	client := clientFor(t, c.AdminConfig())
	for _, node := range c.Nodes() {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "app-" + node.Name()},
			Spec: corev1.PodSpec{
				NodeName:   node.Name(),
				Containers: []corev1.Container{{Name: "app", Image: c.Image("v1")}},
			},
		}
		if _, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, node := range c.Nodes() {
		pod := "app-" + node.Name()
		if _, err := c.Kubectl(t.Context(), "wait", "--for=condition=Ready", "pod/"+pod, "--timeout=60s"); err != nil {
			events, _ := c.Kubectl(t.Context(), "get", "events")
			t.Fatalf("%v\n%s", err, events)
		}
		for _, call := range []struct{ args, want string }{
			{"exec " + pod + " -- /app version", "v1\n"},
			{"logs " + pod, "serving at :8080"},
			{"get --raw /api/v1/namespaces/default/pods/" + pod + ":8080/proxy/", "v1\n"},
		} {
			out, err := c.Kubectl(t.Context(), strings.Fields(call.args)...)
			if err != nil || !strings.Contains(out, call.want) {
				t.Errorf("kubectl %s = %q, %v; want %q", call.args, out, err, call.want)
			}
		}
	}
}

// containerdsAnswer asks each for the version that it runs as, through the path that
// stays when the node is powered off and on.
func containerdsAnswer(t *testing.T, c *cluster.Cluster, containerd map[string]cluster.ContainerdVersion) {
	for _, node := range c.Nodes() {
		want := "1.6"
		if version := containerd[node.Name()]; version != cluster.ContainerdInstalled {
			want = "v" + string(version)
		}
		for _, power := range []string{"at first", "after power was off"} {
			out, err := exec.CommandContext(t.Context(), "ctr", "--address", node.ContainerdSocket(), "version").CombinedOutput()
			if _, server, _ := strings.Cut(string(out), "Server:"); err != nil || !strings.Contains(server, "Version:  "+want) {
				t.Errorf("%s, %s: %v; want version %s\n%s", node.Name(), power, err, want, out)
			}
			if power == "at first" {
				if err := errors.Join(node.PowerOff(), node.PowerOn(t.Context())); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// inventory is what a machine has of all that a cluster might leave: what carries one of
// edgehub's own names, and if inventoryVariable is set, all that there is. The latter takes
// a machine on which nothing else makes mounts, interfaces or control groups meanwhile.
type inventory map[string][]string

const inventoryVariable = "EDGEHUB_INVENTORY"

// ofAll reports whether all of the machine is compared.
func ofAll() bool { return os.Getenv(inventoryVariable) == "1" }

// ownName is in a mount, an interface, a control group, a firewall rule, a route, a setting or
// a file of a cluster's. Addresses of nodes are as good as a name. Machines, which other
// tests may have, are named edgehub-something.
var ownName = regexp.MustCompile(`edgehub($|[^-a-z]|-(cluster|containerd|ctrd)-)|\b198\.18\.`)

// takeInventory waits until no other test's cluster has nodes: what those have
// is not ours.
func takeInventory(t *testing.T) inventory {
	t.Helper()
	release, err := cluster.LockMachine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = release() }()
	i := inventory{}
	i["process"] = processes(t)
	i["mount"] = lines(readFile(t, "/proc/self/mounts"))
	i["interface"] = interfaces(t)
	i["control group"] = controlGroups(t)
	i["firewall rule"] = firewall(t)
	i["route"] = lines(readFile(t, "/proc/net/route"))
	i["sysctl"] = sysctls(t)
	for _, folder := range []string{"/run", "/var/lib", "/var/log", "/opt", "/etc"} {
		entries, err := filepath.Glob(folder + "/*")
		if err != nil {
			t.Fatal(err)
		}
		i["file"] = append(i["file"], entries...)
	}
	for kind, all := range i {
		if kind != "process" && !ofAll() {
			i[kind] = slices.DeleteFunc(all, func(one string) bool { return !ownName.MatchString(one) })
		}
	}
	return i
}

// compare fails the test for whatever is new or gone.
func (i inventory) compare(t *testing.T, after inventory) {
	t.Helper()
	if !ofAll() {
		t.Logf("NOT COMPARED: what else this machine has than edgehub's names; with %s=1, as in make test-all, it is", inventoryVariable)
	}
	for kind, all := range after {
		for _, one := range all {
			if !slices.Contains(i[kind], one) {
				t.Errorf("%s left behind or changed: %s", kind, one)
			}
		}
		for _, one := range i[kind] {
			if kind != "process" && !slices.Contains(all, one) {
				t.Errorf("%s gone or changed: %s", kind, one)
			}
		}
	}
}

// processes are those in other process namespaces, as whatever runs inside a
// node is, and if not all are compared, those of them that are in a node's control groups or
// its first process. What runs outside has the cluster's folder in its arguments.
func processes(t *testing.T) []string {
	t.Helper()
	own, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	all, err := filepath.Glob("/proc/[0-9]*/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	var inside []string
	for _, file := range all {
		namespace, err := os.Readlink(file)
		if err != nil || namespace == own { // an error: it has ended meanwhile
			continue
		}
		process := filepath.Dir(filepath.Dir(file))
		name, _ := os.ReadFile(filepath.Join(process, "comm"))
		groups, _ := os.ReadFile(filepath.Join(process, "cgroup"))
		if ofAll() || string(name) == "nodeinit\n" || strings.Contains(string(groups), "/edgehub/") {
			inside = append(inside, file+" "+string(name))
		}
	}
	return inside
}

func interfaces(t *testing.T) []string {
	t.Helper()
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, i := range all {
		addrs, err := i.Addrs()
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, fmt.Sprint(i.Name, addrs))
	}
	return names
}

// controlGroups are all but those of other sessions, next to the test's own: they come and go
// meanwhile. Each login has one, and each command that a build service runs.
func controlGroups(t *testing.T) []string {
	t.Helper()
	var own []string // below the root of a hierarchy
	for _, line := range lines(readFile(t, "/proc/self/cgroup")) {
		if fields := strings.SplitN(line, ":", 3); len(fields) == 3 && filepath.Dir(fields[2]) != "/" {
			own = append(own, fields[2])
		}
	}
	isOthers := func(path string) bool {
		return slices.ContainsFunc(own, func(own string) bool {
			return strings.HasSuffix(filepath.Dir(path), filepath.Dir(own)) && !strings.HasSuffix(path, own)
		})
	}
	var groups []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			if isOthers(path) {
				return fs.SkipDir
			}
			groups = append(groups, path)
		}
		return nil // what was removed meanwhile is no error
	})
	if err != nil {
		t.Fatal(err)
	}
	return groups
}

func firewall(t *testing.T) []string {
	t.Helper()
	var rules []string
	for _, program := range []string{"iptables-save", "ip6tables-save"} {
		if _, err := exec.LookPath(program); err != nil {
			continue
		}
		out, err := exec.Command(program).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range lines(string(out)) {
			if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, ":") { // times and counters
				rules = append(rules, program+" "+line)
			}
		}
	}
	return rules
}

// sysctls are all settings that stay as they are by themselves.
func sysctls(t *testing.T) []string {
	t.Helper()
	var values []string
	for _, folder := range []string{"/proc/sys/vm", "/proc/sys/net/ipv4", "/proc/sys/net/ipv6/conf/all", "/proc/sys/kernel/keys", "/proc/sys/net/core"} {
		values = append(values, settings(folder)...)
	}
	for _, name := range []string{"panic", "panic_on_oops", "pid_max"} {
		values = append(values, "/proc/sys/kernel/"+name+"="+readFile(t, "/proc/sys/kernel/"+name))
	}
	return values
}

func settings(folder string) []string {
	var values []string
	_ = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			if value, err := os.ReadFile(path); err == nil { // some can only be written
				values = append(values, path+"="+string(bytes.TrimSpace(value)))
			}
		}
		return nil
	})
	return values
}

func readFile(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// lines are without the blanks that pad some of /proc to a fixed width.
func lines(s string) []string {
	all := strings.Split(strings.TrimSpace(s), "\n")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return all
}

// buildHub builds the hub of this repository, which is two folders up.
func buildHub(t *testing.T) string {
	t.Helper()
	return buildGo(t, filepath.Join("..", ".."), "./cmd/edgehub")
}

func buildGo(t *testing.T, folder, pkg string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), filepath.Base(pkg))
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", program, pkg)
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return program
}

// watchedLog calls seen when a line with the text is written.
type watchedLog struct {
	text string
	seen func()
}

func (l *watchedLog) Write(p []byte) (int, error) {
	if strings.Contains(string(p), l.text) {
		l.seen()
	}
	return len(p), nil
}
