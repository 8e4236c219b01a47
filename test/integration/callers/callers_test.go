package callers

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/hubproc"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// newHub starts a hub whose node may read everything.
func newHub(t *testing.T, o hubproc.Options) *hubproc.Hub {
	t.Helper()
	o.Binary, o.Server = env.hubBin, env.ServerURL()
	h := hubproc.New(t, o)
	h.IdentifyAs(env.Cluster, "system:masters")
	h.Start()
	return h
}

const secrets = "/api/v1/namespaces/kube-system/secrets"

func wantNode(t *testing.T, out outcome) {
	t.Helper()
	if out.Code != http.StatusOK || !strings.Contains(out.Body, `"kind":"SecretList"`) {
		t.Errorf("the node's own program got %d %.300s %s", out.Code, out.Body, out.Err)
	}
}

// wantRefused wants a Status that has why, and what to do.
func wantRefused(t *testing.T, out outcome, why string) {
	t.Helper()
	var status metav1.Status
	if err := json.Unmarshal([]byte(out.Body), &status); err != nil || out.Code != http.StatusUnauthorized {
		t.Fatalf("got %d %.300s %s, %v; want 401 and a Status", out.Code, out.Body, out.Err, err)
	}
	if status.Reason != metav1.StatusReasonUnauthorized || !strings.Contains(status.Message, why) || !strings.Contains(status.Message, "send a bearer token") {
		t.Errorf("the Status is %s: %q, want it to say %q", status.Reason, status.Message, why)
	}
}

func TestTheNodesOwnProgramsGetItsIdentity(t *testing.T) {
	needRoot(t)
	h := newHub(t, hubproc.Options{})
	wantNode(t, newCaller(t, nil).do(order{Get: h.Plain + secrets}))
	put := putInto(t, "system.slice/kubelet.service")
	c := newCaller(t, nil)
	put(c.pid)
	wantNode(t, c.do(order{Get: h.Plain + secrets}))
	wantMetric(t, h, "edgehub_proxy_caller_check 1")
}

func TestOthersDoNot(t *testing.T) {
	needRoot(t)
	nobody := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	tests := map[string]struct {
		start       func(t *testing.T) *caller
		why, metric string
	}{
		"another user": {
			func(t *testing.T) *caller { return newCaller(t, nobody) },
			"it comes from user ID 65534", "user",
		},
		"root of a user namespace": {
			func(t *testing.T) *caller {
				return newCaller(t, &syscall.SysProcAttr{
					Cloneflags:  syscall.CLONE_NEWUSER,
					UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 65534, Size: 1}},
					GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 65534, Size: 1}},
					Credential:  &syscall.Credential{Uid: 0, Gid: 0, NoSetGroups: true},
				})
			},
			"it comes from user ID 65534", "user",
		},
		"a pod, systemd's driver": {
			func(t *testing.T) *caller {
				return inPod(t, "kubepods.slice/kubepods-pod"+strings.ReplaceAll(podUID, "-", "_")+".slice/cri-containerd-"+containerID+".scope")
			},
			"it comes from a container of the pod with UID " + podUID, "container",
		},
		"a container of Docker": {
			func(t *testing.T) *caller { return inPod(t, "docker/"+containerID) },
			"it comes from the container " + containerID[:12], "container",
		},
	}
	h := newHub(t, hubproc.Options{Args: []string{"--caller-check=required"}})
	token := tokenOfAReader(t)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := tt.start(t)
			wantRefused(t, c.do(order{Get: h.Plain + secrets}), tt.why)
			if out := c.do(order{Get: h.Plain + "/api/v1/namespaces/default/configmaps", Token: token}); out.Code != http.StatusOK {
				t.Errorf("with a token of its own it got %d %.300s %s", out.Code, out.Body, out.Err)
			}
			if out := c.do(order{Get: h.Plain + secrets, Token: token}); out.Code != http.StatusForbidden {
				t.Errorf("with a token it got what that may not read: %d %.300s %s", out.Code, out.Body, out.Err)
			}
			wantMetric(t, h, `edgehub_proxy_callers_refused_total{reason="`+tt.metric+`"} `)
		})
	}
	log, err := os.ReadFile(h.Log)
	if err != nil {
		t.Fatal(err)
	}
	for _, said := range []string{"uid=65534", "pod=" + podUID, "container=" + containerID, "comm=exe"} {
		if !strings.Contains(string(log), said) {
			t.Errorf("the log does not say %s", said)
		}
	}
	if strings.Count(string(log), "did not get the node's identity") != 3 { // two of the four are user 65534
		t.Errorf("not one line for each caller:\n%s", log)
	}
}

// kubeletsKubeconfig writes that of a kubelet whose certificate has expired, and returns the file and the
// tls-server-name in it.
func kubeletsKubeconfig(t *testing.T) (file, name string) {
	t.Helper()
	cert, key, err := env.ClientCertUntil(time.Now().Add(-time.Minute), "system:node:n", "system:nodes")
	if err != nil {
		t.Fatal(err)
	}
	file, name = filepath.Join(t.TempDir(), "kubelet.conf"), strings.Repeat("k", 26)+".edgehub.invalid"
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:10268", TLSServerName: name}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificate: cert, ClientKey: key}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file, name
}

// A kubelet whose certificate has expired shows none. While the cloud is away, the port with
// TLS takes the node's own programs for the node without one, if they know the name in kubelet's kubeconfig, and
// nobody else.
func TestWithoutACertificateWhileTheCloudIsAway(t *testing.T) {
	needRoot(t)
	kubelet, name := kubeletsKubeconfig(t)
	h := newHub(t, hubproc.Options{Args: []string{"--kubelet-kubeconfig=" + kubelet}})
	url := fmt.Sprintf("https://127.0.0.1:%d%s", h.SecurePort, secrets)
	root := newCaller(t, nil)
	wantNode(t, root.do(order{Get: h.Plain + secrets})) // now it is cached
	if out := root.do(order{Get: url, Name: name}); out.Code != http.StatusUnauthorized {
		t.Errorf("while the cloud is there: %d %.300s %s", out.Code, out.Body, out.Err)
	}
	if err := h.Link.Refuse(); err != nil {
		t.Fatal(err)
	}
	h.Link.Reset()
	poll.Eventually(t, "the hub knows that the cloud is away", func() bool {
		root.do(order{Get: h.Plain + "/version"}) // it notices when it is asked
		return root.do(order{Get: url, Name: name}).Code == http.StatusOK
	})
	wantNode(t, root.do(order{Get: url, Name: name}))
	nobody := newCaller(t, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}})
	wantRefused(t, nobody.do(order{Get: url, Name: name}), "it comes from user ID 65534")
	pod := inPod(t, "kubepods/besteffort/pod"+podUID+"/"+containerID)
	wantRefused(t, pod.do(order{Get: url, Name: name}), "it comes from a container of the pod with UID "+podUID)
	if out := root.do(order{Get: url}); out.Code != http.StatusUnauthorized || !strings.Contains(out.Body, "secret tls-server-name") {
		t.Errorf("a program of root's that does not know the name, as kubelet's probes: %d %.300s %s", out.Code, out.Body, out.Err)
	}
}

// outerAddress returns an address of this machine that is not on loopback.
func outerAddress(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if ip := a.(*net.IPNet).IP; ip.To4() != nil && ip.IsGlobalUnicast() {
			return ip.String()
		}
	}
	t.Skip("NOT RUN: this machine has no address but loopback")
	return ""
}

// A pod on the host's network whose user is root takes no connection of root's own programs, nor of another pod's.
func TestAPodOnTheHostsNetworkIsAPeerOfItsOwn(t *testing.T) {
	needRoot(t)
	outer := outerAddress(t)
	h := newHub(t, hubproc.Options{Args: []string{"--dummy-if-ip=" + outer, "--max-connections=160"}})
	pod := inPod(t, "kubepods/besteffort/pod"+podUID+"/"+containerID+"/made/at/will")
	other := inPod(t, "kubepods/besteffort/pod"+strings.Repeat("0", 32)+"/"+containerID)
	forPods, loopback := fmt.Sprintf("%s:%d", outer, h.SecurePort), fmt.Sprintf("127.0.0.1:%d", h.SecurePort)
	for _, at := range []string{forPods, loopback} {
		if out := pod.do(order{Hold: at, Times: 100}); out.Code == 0 || out.Code > 60 {
			t.Errorf("the pod has %d connections to %s: %s", out.Code, at, out.Err)
		}
	}
	for at, victim := range map[string]*caller{forPods: newCaller(t, nil), loopback: other} {
		if out := victim.do(order{Hold: at, Times: 4}); out.Code != 4 {
			t.Errorf("at %s others have %d connections of 4: %s", at, out.Code, out.Err)
		}
	}
}

// tokenOfAReader is a token that may read ConfigMaps in the namespace default.
func tokenOfAReader(t *testing.T) string {
	t.Helper()
	client, err := kubernetes.NewForConfig(env.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	accounts := client.CoreV1().ServiceAccounts("default")
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "reader"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := accounts.CreateToken(t.Context(), "reader", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	allow(t, client)
	return token.Status.Token
}

func wantMetric(t *testing.T, h *hubproc.Hub, line string) {
	t.Helper()
	if out := get(order{Get: h.API + "/metrics"}); !strings.Contains(out.Body, line) {
		t.Errorf("/metrics has no line %s…", line)
	}
}

func TestNodeIdentityUsersAreWhoIsNamed(t *testing.T) {
	needRoot(t)
	h := newHub(t, hubproc.Options{Args: []string{"--node-identity-users=65534"}})
	c := newCaller(t, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}})
	wantNode(t, c.do(order{Get: h.Plain + secrets}))
	wantRefused(t, newCaller(t, nil).do(order{Get: h.Plain + secrets}), "it comes from user ID 0")
}

// Where the hub may not look into other processes, it says so.
func TestAHubThatCannotTellSaysSo(t *testing.T) {
	needRoot(t)
	without := []string{"setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace"}
	h := newHub(t, hubproc.Options{Wrap: without})
	wantNode(t, inPod(t, "kubepods/pod"+podUID).do(order{Get: h.Plain + secrets}))
	wantMetric(t, h, "edgehub_proxy_caller_check 0")
	log, err := os.ReadFile(h.Log)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(log), "lacks CAP_SYS_PTRACE") {
		t.Errorf("the log does not say what is missing:\n%s", log)
	}
	required := startBare(t, append(without, env.hubBin, "--caller-check=required"))
	if !strings.Contains(required, "--caller-check=required: ") || !strings.Contains(required, "lacks CAP_SYS_PTRACE") {
		t.Errorf("where it is required, the hub ends with %q", required)
	}
}

func TestTheNodesHTTPAPIIsForProgramsOutsideOfContainers(t *testing.T) {
	needRoot(t)
	nobody := newCaller(t, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}})
	pod := inPod(t, "kubepods/besteffort/pod"+podUID+"/"+containerID)
	h := newHub(t, hubproc.Options{})
	if out := nobody.do(order{Get: h.API + "/pods"}); out.Code != http.StatusOK {
		t.Errorf("a user of the node got %d %s %s", out.Code, out.Body, out.Err)
	}
	paths := []string{
		"/pods", "/debug/cache", "/openyurt.io/v1/imagepulls", "/nonsense",
		api.Page, "/page/app.js", api.Apps, api.Node, api.Events, api.Stream, api.Bundle, api.WebCodes, api.WebTokens,
	}
	for _, path := range paths {
		out := pod.do(order{Get: h.API + path})
		if out.Code != http.StatusForbidden || !strings.Contains(out.Body, "pod with UID "+podUID) || !strings.Contains(out.Body, "--serve-to-containers") {
			t.Errorf("a pod asks for %s and gets %d %s %s", path, out.Code, out.Body, out.Err)
		}
	}
	for _, path := range []string{"/v1/healthz", "/v1/readyz", "/metrics"} {
		if out := pod.do(order{Get: h.API + path}); out.Code != http.StatusOK {
			t.Errorf("a pod asks for %s and gets %d %s %s", path, out.Code, out.Body, out.Err)
		}
	}
	wantMetric(t, h, fmt.Sprintf(`edgehub_api_callers_refused_total{reason="container"} %d`, len(paths)))
	open := newHub(t, hubproc.Options{Args: []string{"--serve-to-containers"}})
	if out := pod.do(order{Get: open.API + "/pods"}); out.Code != http.StatusOK {
		t.Errorf("where containers are let in, a pod gets %d %s %s", out.Code, out.Body, out.Err)
	}
}
