package fuzzcache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/test/chaos/seeds"
	"github.com/edgehub-io/edgehub/test/internal/hubproc"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// Kubelet, kube-proxy and a pod, as client-go reads for them, are shown in an outage what the cloud does not have:
// default/kubernetes leads to the hub, and the node and its pod have another status. The hub is killed or stopped
// within 30 s of the return, and started again. In the end they have what the apiserver has.
//
// ROUNDS sets how many rounds are played, FIRST_SEED with which seed to begin. What is done, and when, follows from
// the seed; what the processes make of it does not.
func TestWhatWasShownInAnOutageIsTakenBack(t *testing.T) {
	grantReaders(t)
	seeds.Each(t, "ROUNDS", roundsAtOnce, func(t *testing.T, seed int) {
		t.Parallel()
		newRound(t, seed).play()
	})
}

const (
	apiServers = "kubernetes" // their Service and its slice, in the namespace default
	// roundsAtOnce are played beside each other: they wait more than they compute.
	roundsAtOnce = 8

	around   = 30 * time.Second // how long before or after the return the hub ends, at most
	maxPause = 10 * time.Second // until it is started again
	// namespace has the pods and Services of all rounds.
	namespace = metav1.NamespaceDefault
)

// grantReaders lets a kube-proxy that uses the node's identity read, and one with a token, and makes what an
// apiserver has elsewhere.
func grantReaders(t *testing.T) {
	t.Helper()
	made := func(err error) {
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	for name, group := range map[string]string{"nodes": "system:nodes", "pods": "system:serviceaccounts:" + namespace} {
		_, err := env.admins[0].RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "test-" + name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-proxier"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group}},
		}, metav1.CreateOptions{})
		made(err)
	}
	// The test cluster's apiserver does not write it: on loopback it has no address for it.
	_, err := env.admins[0].DiscoveryV1().EndpointSlices(namespace).Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: apiServers, Labels: map[string]string{discoveryv1.LabelServiceName: apiServers}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"198.51.100.1"}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}}},
		Ports:       []discoveryv1.EndpointPort{{Name: new("https"), Port: new(int32(6443)), Protocol: new(corev1.ProtocolTCP)}},
	}, metav1.CreateOptions{})
	made(err)
}

// round is one node with a pod, which a Service leads to, and those who read of them.
type round struct {
	*testing.T
	hub     *hubproc.Hub
	hubIP   string // where pods reach the hub
	podIP   string
	kubelet kubernetes.Interface // through the hub
	readers []*reader
	reports int // of kubelet

	pods, nodes *reader   // kubelet's
	slices      []*reader // kube-proxy's and the pod's

	// What the seed decides: when the hub ends, counted from the return; how; how long it is away;
	// and whether kubelet reports its pod's status again after the return.
	at       time.Duration
	killed   bool
	pause    time.Duration
	reporter bool
}

func newRound(t *testing.T, seed int) *round {
	t.Helper()
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	x := 2*random.Float64() - 1
	r := &round{
		T: t, hubIP: ownAddress(t), podIP: fmt.Sprintf("10.77.%d.%d", seed/256%256, seed%256),
		at:     time.Duration(x * x * x * float64(around)), // half of them within 4 s
		killed: random.IntN(2) == 0, pause: time.Duration(random.Int64N(int64(maxPause))), reporter: random.IntN(2) == 0,
	}
	r.Logf("the hub ends %v after the return, killed: %v; it is started %v later; kubelet reports again: %v", r.at, r.killed, r.pause, r.reporter)
	r.hub = hubproc.New(t, hubproc.Options{Binary: env.hubBin, Server: env.ServerURLs()[0], Args: []string{
		"--container-runtime-endpoint=", "--dummy-if-ip=" + r.hubIP,
		"--reconnect-jitter=2s", // the product's own
		"--transforms=",         // or the node's own programs read default/kubernetes otherwise, online as well
	}})
	r.hub.IdentifyAs(env.Cluster, "system:nodes")
	return r
}

// ownAddress is an address of this machine at which a pod could reach it.
func ownAddress(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		if prefix, err := netip.ParsePrefix(one.String()); err == nil && prefix.Addr().Is4() && !prefix.Addr().IsLoopback() {
			return prefix.Addr().String()
		}
	}
	t.Fatal("this machine has no IPv4 address but 127.0.0.1, and pods are led to none on loopback")
	return ""
}

func (r *round) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *round) play() {
	r.create()
	r.hub.Start()
	r.read()
	poll.Check(r.Context(), r, "the pod is ready, and all readers have what the apiserver has", func(ctx context.Context) error {
		if err := r.expectSlices(true, false); err != nil {
			return errors.Join(err, r.report(ctx, corev1.ConditionTrue))
		}
		return r.differ(ctx)
	})

	r.must(r.hub.Link.Refuse())
	r.hub.Link.Reset()
	poll.Check(r.Context(), r, "in the outage default/kubernetes leads to the hub, and the node and its pod have another status", func(ctx context.Context) error {
		return errors.Join(r.report(ctx, corev1.ConditionFalse), r.expectSlices(false, true), r.expectStatus(corev1.ConditionFalse))
	})
	r.comeBack()
	poll.Check(r.Context(), r, "after the return all readers have what the apiserver has", func(ctx context.Context) error {
		if r.reporter && r.expectStatus(corev1.ConditionFalse) != nil {
			return errors.Join(r.report(ctx, corev1.ConditionFalse), r.differ(ctx))
		}
		return r.differ(ctx)
	})
}

// create makes the node, its pod and a Service that leads there.
func (r *round) create() {
	r.Helper()
	_, err := env.admins[0].CoreV1().Nodes().Create(r.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: r.hub.Name}}, metav1.CreateOptions{})
	r.must(err)
	labels := map[string]string{"app": r.hub.Name}
	_, err = env.admins[0].CoreV1().Services(namespace).Create(r.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: r.hub.Name}, Spec: corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	r.must(err)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: r.hub.Name, Labels: labels}, Spec: corev1.PodSpec{
		NodeName: r.hub.Name, AutomountServiceAccountToken: new(bool),
		Containers: []corev1.Container{{Name: "c", Image: "app.invalid/app:v1"}},
	}}
	poll.Check(r.Context(), r, "the pod is admitted", func(ctx context.Context) error { // once the namespace has its service account
		_, err := env.admins[0].CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
}

// read starts the readers: kubelet and a kube-proxy, which are the node, and a pod with a token.
func (r *round) read() {
	r.Helper()
	token, err := env.admins[0].CoreV1().ServiceAccounts(namespace).CreateToken(r.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	r.must(err)
	node, err := kubernetes.NewForConfig(&rest.Config{Host: r.hub.Plain, QPS: -1})
	r.must(err)
	pod, err := kubernetes.NewForConfig(&rest.Config{
		Host: "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(r.hub.SecurePort)), BearerToken: token.Status.Token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(r.hub.Root, "pki", "serving.crt")},
	})
	r.must(err)
	r.kubelet = node
	core, discovery := env.admins[0].CoreV1().RESTClient(), env.admins[0].DiscoveryV1().RESTClient()
	r.pods = r.follow("kubelet", node.CoreV1().RESTClient(), core, "pods", &corev1.Pod{}, fields.OneTermEqualSelector("spec.nodeName", r.hub.Name))
	r.nodes = r.follow("kubelet", node.CoreV1().RESTClient(), core, "nodes", &corev1.Node{}, fields.OneTermEqualSelector("metadata.name", r.hub.Name))
	for who, client := range map[string]kubernetes.Interface{"kube-proxy": node, "a pod": pod} {
		r.follow(who, client.CoreV1().RESTClient(), core, "services", &corev1.Service{}, fields.Everything())
		r.slices = append(r.slices, r.follow(who, client.DiscoveryV1().RESTClient(), discovery, "endpointslices", &discoveryv1.EndpointSlice{}, fields.Everything()))
	}
}

// differ returns an error for each reader that has not what the apiserver has.
func (r *round) differ(ctx context.Context) error {
	var errs []error
	for _, p := range r.readers {
		errs = append(errs, p.differs(ctx))
	}
	return errors.Join(errs...)
}

// report is what kubelet does when its pod has become ready, or not. Its Node has the same
// condition here.
func (r *round) report(ctx context.Context, ready corev1.ConditionStatus) error {
	r.reports++
	conditions := fmt.Sprintf(`[{"type":"Ready","status":%q,"reason":"Test","message":"report %d"}]`, ready, r.reports)
	_, err := r.kubelet.CoreV1().Pods(namespace).Patch(ctx, r.hub.Name, types.StrategicMergePatchType, fmt.Appendf(nil,
		`{"status":{"phase":"Running","podIP":%[1]q,"podIPs":[{"ip":%[1]q}],"conditions":%[2]s}}`, r.podIP, conditions), metav1.PatchOptions{}, "status")
	if err != nil {
		return err
	}
	_, err = r.kubelet.CoreV1().Nodes().PatchStatus(ctx, r.hub.Name, fmt.Appendf(nil, `{"status":{"conditions":%s}}`, conditions))
	return err
}

// expectStatus returns an error unless kubelet reads its pod and node as it has reported them.
func (r *round) expectStatus(ready corev1.ConditionStatus) error {
	have := 0
	for _, object := range append(r.pods.store.List(), r.nodes.store.List()...) {
		var status struct {
			Status struct{ Conditions []metav1.Condition }
		}
		body, err := json.Marshal(object)
		if err = errors.Join(err, json.Unmarshal(body, &status)); err != nil {
			return err
		}
		for _, c := range status.Status.Conditions {
			if c.Type == "Ready" && string(c.Status) == string(ready) {
				have++
			}
		}
	}
	if have != 2 {
		return fmt.Errorf("of kubelet's pod and node %d have Ready=%s", have, ready)
	}
	return nil
}

// expectSlices returns an error unless all who read slices have the pod ready, or not, and the
// apiservers at the hub, or not.
func (r *round) expectSlices(ready, atHub bool) error {
	for _, p := range r.slices {
		var podReady, leadsToHub bool
		for _, object := range p.store.List() {
			slice := object.(*discoveryv1.EndpointSlice)
			for _, e := range slice.Endpoints {
				isReady := e.Conditions.Ready == nil || *e.Conditions.Ready
				podReady = podReady || isReady && slices.Contains(e.Addresses, r.podIP)
				leadsToHub = leadsToHub || slice.Name == apiServers && slices.Contains(e.Addresses, r.hubIP)
			}
		}
		if podReady != ready || leadsToHub != atHub {
			return fmt.Errorf("%s: the pod is ready: %v, default/kubernetes leads to the hub: %v", p.name, podReady, leadsToHub)
		}
	}
	return nil
}

// comeBack has the cloud return, and the hub end and start again, each at the instant that the seed
// has chosen: not when something is so, since chance has to decide where the hub has come by then.
func (r *round) comeBack() {
	r.Helper()
	end := r.hub.Stop
	if r.killed {
		end = r.hub.Kill
	}
	type step struct {
		at time.Duration // after the return
		do func()
	}
	steps := []step{{0, func() { r.must(r.hub.Link.Up()) }}, {r.at, end}, {r.at + r.pause, r.hub.Start}}
	slices.SortStableFunc(steps, func(a, b step) int { return int(a.at - b.at) })
	began := time.Now().Add(-steps[0].at)
	for _, s := range steps {
		select {
		case <-r.Context().Done():
		case <-time.After(time.Until(began.Add(s.at))):
		}
		s.do()
	}
}
