package servicefilters

import (
	"path/filepath"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/test/internal/poll"
)

const (
	topologyKeys = "openyurt.io/topologyKeys"
	pool         = "apps.openyurt.io/nodepool"
)

// A watch may cause three lists at once, and then one in ten seconds: changes are few, and of several Services together.
func TestKubeProxyAndCoreDNSReadServicesAsTheirAnnotationsAsk(t *testing.T) {
	r := newRig(t)
	other := r.newNamespace("others-")
	for name, kind := range map[string]corev1.ServiceType{
		"node": corev1.ServiceTypeClusterIP, "zone": corev1.ServiceTypeClusterIP, "pool": corev1.ServiceTypeClusterIP,
		"balanced": corev1.ServiceTypeLoadBalancer, "ports": corev1.ServiceTypeNodePort,
	} {
		r.addService(r.namespace, name, kind)
	}
	r.addService(other, "node", corev1.ServiceTypeClusterIP)
	r.annotate("node", topologyKeys, "kubernetes.io/hostname")
	r.annotate("zone", topologyKeys, "topology.kubernetes.io/zone")
	r.annotate("pool", topologyKeys, "openyurt.io/nodepool")
	all := []string{r.own, r.near, r.far}

	proxy, older, dns := r.newReader("kube-proxy", r.proxyToken, true), r.newReader("an older kube-proxy", r.proxyToken, false), r.newReader("CoreDNS", r.dns, true)
	readers := []*reader{proxy, older, dns}
	// The hub may not list nodes yet, and leaves out nothing for a pool.
	r.awaitSlices(map[string][]string{"node": {r.own}, "zone": {r.own, r.far}, "pool": all}, readers...)
	poll.Until(t, patience, "/debug/cache says that the pool may not be read", func() bool {
		return strings.Contains(r.debug(), `"nodePoolRefused":true`)
	})
	r.hub.Stop() // which asks for the right once a minute, and when it starts
	r.applyManifests()
	poll.Until(t, patience, "the node may list nodes", r.mayListNodes)
	r.hub.Start()
	r.awaitSlices(map[string][]string{"pool": {r.own, r.near}}, readers...)

	// Services that are not for this node, and are again.
	balanced, ports := r.namespace+"/balanced", r.namespace+"/ports"
	r.annotate("balanced", "svc.openyurt.io/discard", "true")
	r.annotate("ports", "nodeport.openyurt.io/listen", "p2")
	r.awaitService(balanced, false, proxy, older)
	r.awaitService(ports, false, proxy, older)
	r.awaitService(balanced, true, dns) // names are resolved as before
	r.awaitService(ports, true, dns)
	r.label(r.own, pool, "p2")
	r.awaitService(ports, true, readers...)
	r.awaitSlices(map[string][]string{"pool": {r.own, r.far}}, readers...)
	r.annotate("balanced", "svc.openyurt.io/discard", "")
	r.awaitService(balanced, true, readers...)

	// Nobody else is affected: another namespace, and another account.
	r.awaitSlice(other+"/node", all, readers...)
	token, err := env.admin.CoreV1().ServiceAccounts("kube-system").CreateToken(t.Context(), "namespace-controller", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := env.Kubectl(t.Context(), "create", "clusterrolebinding", r.namespace, "--clusterrole=cluster-admin", "--serviceaccount=kube-system:namespace-controller"); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, patience, "another account may read", func() bool {
		_, err := r.list(token.Status.Token, r.namespace)
		return err == nil
	})
	r.wantList(token.Status.Token, r.namespace, map[string][]string{"node": all, "zone": all, "pool": all, "balanced": all, "ports": all})
	filtered := map[string][]string{"node": {r.own}, "zone": {r.own, r.far}, "pool": {r.own, r.far}, "balanced": all, "ports": all}
	r.wantList(r.proxyToken, r.namespace, filtered)

	r.throughAnOutage(filtered, readers)
}

// applyManifests applies deploy/servicefilters.
func (r *rig) applyManifests() {
	r.Helper()
	out, err := env.Kubectl(r.Context(), "apply", "--validate=strict", "-k", filepath.Join(productRoot, "deploy", "servicefilters"))
	if err != nil {
		r.Fatalf("%v: %s", err, out)
	}
}

// mayListNodes reports whether the apiserver lets the node's hub list nodes.
func (r *rig) mayListNodes() bool {
	review, err := env.admin.AuthorizationV1().SubjectAccessReviews().Create(r.Context(), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: r.hub.User, Groups: []string{"system:nodes"}, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "nodes"},
		},
	}, metav1.CreateOptions{})
	r.must(err)
	return review.Status.Allowed
}

// warnings are those of an apiserver.
type warnings struct {
	mu   sync.Mutex
	last string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = text
}

func TestAnUnknownValueIsWarnedOf(t *testing.T) {
	r := &rig{T: t}
	r.applyManifests()
	r.namespace = r.newNamespace("warnings-")
	seen := &warnings{}
	config := env.AdminConfig()
	config.WarningHandler = seen
	client, err := kubernetes.NewForConfig(config)
	r.must(err)
	warned := func(value string) bool {
		seen.mu.Lock()
		seen.last = ""
		seen.mu.Unlock()
		_, err := client.CoreV1().Services(r.namespace).Create(t.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "s-", Annotations: map[string]string{topologyKeys: value}},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}, metav1.CreateOptions{})
		r.must(err)
		seen.mu.Lock()
		defer seen.mu.Unlock()
		return strings.Contains(seen.last, "all endpoints are used")
	}
	poll.Until(t, patience, "an unknown value is warned of", func() bool { return warned("kubernetes.io/host") })
	for _, value := range []string{"", "kubernetes.io/hostname", "kubernetes.io/zone", "topology.kubernetes.io/zone", "openyurt.io/nodepool", " openyurt.io/nodepool "} {
		if warned(value) {
			t.Errorf("%q is warned of", value)
		}
	}
}

// throughAnOutage shows that all is as before without the cloud, after a restart of the hub, and
// that what happens meanwhile is made up for.
func (r *rig) throughAnOutage(filtered map[string][]string, readers []*reader) {
	r.Helper()
	r.must(r.hub.Link.Refuse())
	r.hub.Link.Reset()
	poll.Until(r, patience, "the hub knows that the cloud is away", func() bool {
		return strings.Contains(r.debug(), `"up":false`)
	})
	r.wantList(r.proxyToken, r.namespace, filtered)
	r.hub.Stop()
	r.hub.Start()
	poll.Until(r, patience, "the hub answers from its cache", func() bool {
		_, err := r.list(r.proxyToken, r.namespace)
		return err == nil
	})
	r.wantList(r.proxyToken, r.namespace, filtered)
	readers = append(readers, r.newReader("a kube-proxy that starts offline", r.proxyToken, true))
	r.awaitSlices(filtered, readers...)
	r.awaitService(r.namespace+"/node", true, readers...)

	r.hub.Stop()
	r.annotate("node", topologyKeys, "")
	r.annotate("balanced", topologyKeys, "kubernetes.io/hostname")
	r.label(r.near, pool, "p2")
	r.must(r.hub.Link.Up())
	r.hub.Start()
	all := []string{r.own, r.near, r.far}
	r.awaitSlices(map[string][]string{"node": all, "balanced": {r.own}, "pool": all}, readers...)
}
