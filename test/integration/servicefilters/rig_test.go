package servicefilters

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/features"
	clientfeatures "k8s.io/client-go/features/testing"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/edgehub-io/edgehub/test/internal/hubproc"
	"github.com/edgehub-io/edgehub/test/internal/poll"
	"github.com/edgehub-io/edgehub/test/internal/rawclient"
)

// rig is a hub, its node, and other nodes: one in the same pool, and one in another pool and in
// the same zone.
type rig struct {
	*testing.T
	hub             *hubproc.Hub
	own, near, far  string // nodes
	namespace       string
	proxyToken, dns string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	h := hubproc.New(t, hubproc.Options{Binary: env.hubBin, Server: env.ServerURL(), Args: []string{"--container-runtime-endpoint="}})
	h.IdentifyAs(env.Cluster, "system:nodes")
	r := &rig{T: t, hub: h, own: h.Name, near: h.Name + "-near", far: h.Name + "-far"}
	for node, labels := range map[string]map[string]string{
		r.own:  {"apps.openyurt.io/nodepool": "p1", corev1.LabelTopologyZone: "z1"},
		r.near: {"apps.openyurt.io/nodepool": "p1"},
		r.far:  {"apps.openyurt.io/nodepool": "p2"},
	} {
		_, err := env.admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: labels}}, metav1.CreateOptions{})
		r.must(err)
	}
	r.namespace = r.newNamespace("filters-")
	r.proxyToken, r.dns = r.account("kube-proxy"), r.account("coredns")
	h.Start()
	return r
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) newNamespace(prefix string) string {
	r.Helper()
	ns, err := env.admin.CoreV1().Namespaces().Create(r.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}}, metav1.CreateOptions{})
	r.must(err)
	return ns.Name
}

// account makes a service account of kube-system with the rights of kube-proxy, which CoreDNS
// has, too, as far as it reads here, and returns a token.
func (r *rig) account(name string) string {
	r.Helper()
	accounts := env.admin.CoreV1().ServiceAccounts("kube-system")
	if _, err := accounts.Create(r.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		r.must(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "test-" + name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-proxier"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "kube-system", Name: name}},
	}
	if _, err := env.admin.RbacV1().ClusterRoleBindings().Create(r.Context(), binding, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		r.must(err)
	}
	token, err := accounts.CreateToken(r.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	r.must(err)
	return token.Status.Token
}

// addService makes a Service and its slice, with an endpoint on each node.
func (r *rig) addService(namespace, name string, kind corev1.ServiceType) {
	r.Helper()
	_, err := env.admin.CoreV1().Services(namespace).Create(r.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Type: kind, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	r.must(err)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: new(int32(80))}},
	}
	for i, node := range []string{r.own, r.near, r.far} {
		zone := []string{"z1", "z2", "z1"}[i]
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.9.0.%d", i+1)}, NodeName: &node, Zone: &zone})
	}
	_, err = env.admin.DiscoveryV1().EndpointSlices(namespace).Create(r.Context(), slice, metav1.CreateOptions{})
	r.must(err)
}

// annotate sets an annotation of a Service; "" removes it.
func (r *rig) annotate(name, key, value string) {
	r.Helper()
	_, err := env.admin.CoreV1().Services(r.namespace).Patch(r.Context(), name, types.MergePatchType, patch("annotations", key, value), metav1.PatchOptions{})
	r.must(err)
}

func (r *rig) label(node, key, value string) {
	r.Helper()
	_, err := env.admin.CoreV1().Nodes().Patch(r.Context(), node, types.MergePatchType, patch("labels", key, value), metav1.PatchOptions{})
	r.must(err)
}

func patch(field, key, value string) []byte {
	text := strconv.Quote(value)
	if value == "" {
		text = "null"
	}
	return fmt.Appendf(nil, `{"metadata":{%q:{%q:%s}}}`, field, key, text)
}

// client is a client of the hub with a token.
func (r *rig) client(token string) *kubernetes.Clientset {
	r.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(r.hub.SecurePort)), BearerToken: token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(r.hub.Root, "pki", "serving.crt")},
	})
	r.must(err)
	return client
}

// reader is what a program knows by informers' handlers, which is all that kube-proxy acts on.
type reader struct {
	name string

	mu       sync.Mutex
	services map[string]bool
	slices   map[string][]string // the nodes of their endpoints
}

// newReader starts informers of Services and EndpointSlices with kube-proxy's selector.
func (r *rig) newReader(name, token string, watchList bool) *reader {
	r.Helper()
	factory := informers.NewSharedInformerFactoryWithOptions(r.client(token), 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.LabelSelector = "!service.kubernetes.io/headless,!service.kubernetes.io/service-proxy-name"
	}))
	p := &reader{name: name, services: map[string]bool{}, slices: map[string][]string{}}
	add := func(informer cache.SharedIndexInformer, handle func(key string, object any, there bool)) {
		of := func(object any, there bool) {
			key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
			if err != nil {
				r.Error(err)
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			handle(key, object, there)
		}
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) { of(o, true) }, UpdateFunc: func(_, o any) { of(o, true) }, DeleteFunc: func(o any) { of(o, false) },
		})
		r.must(err)
	}
	add(factory.Core().V1().Services().Informer(), func(key string, _ any, there bool) {
		p.services[key] = there
	})
	add(factory.Discovery().V1().EndpointSlices().Informer(), func(key string, object any, there bool) {
		delete(p.slices, key)
		if slice, ok := object.(*discoveryv1.EndpointSlice); ok && there {
			p.slices[key] = []string{}
			for _, e := range slice.Endpoints {
				p.slices[key] = append(p.slices[key], *e.NodeName)
			}
		}
	})
	ctx, cancel := context.WithCancel(r.Context())
	r.Cleanup(func() { cancel(); factory.Shutdown() })
	r.Run("start "+name, func(t *testing.T) {
		clientfeatures.SetFeatureDuringTest(t, features.WatchListClient, watchList)
		factory.StartWithContext(ctx)
		if err := factory.WaitForCacheSyncWithContext(t.Context()).Err; err != nil {
			t.Error(err)
		}
	})
	return p
}

// awaitSlice waits until the readers know these nodes of a slice.
func (r *rig) awaitSlice(key string, nodes []string, readers ...*reader) {
	r.Helper()
	for _, p := range readers {
		var last []string
		if !poll.Within(patience, func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			last = slices.Clone(p.slices[key])
			return slices.Equal(last, nodes)
		}) {
			r.Fatalf("%s knows %v of %s, and not %v", p.name, last, key, nodes)
		}
	}
}

// awaitSlices is awaitSlice for several slices of the rig's namespace.
func (r *rig) awaitSlices(want map[string][]string, readers ...*reader) {
	r.Helper()
	for name, nodes := range want {
		r.awaitSlice(r.namespace+"/"+name, nodes, readers...)
	}
}

// awaitService waits until a reader knows a Service, or does not.
func (r *rig) awaitService(key string, there bool, readers ...*reader) {
	r.Helper()
	for _, p := range readers {
		poll.Until(r, patience, fmt.Sprintf("%s knows %s: %v", p.name, key, there), func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.services[key] == there
		})
	}
}

// list returns what a new client reads with a token: the slices of a namespace.
func (r *rig) list(token, namespace string) (map[string][]string, error) {
	list, err := r.client(token).DiscoveryV1().EndpointSlices("").List(r.Context(), metav1.ListOptions{
		LabelSelector: "!service.kubernetes.io/headless,!service.kubernetes.io/service-proxy-name",
	})
	if err != nil {
		return nil, err
	}
	found := map[string][]string{}
	for _, slice := range list.Items {
		if slice.Namespace != namespace {
			continue
		}
		for _, e := range slice.Endpoints {
			found[slice.Name] = append(found[slice.Name], *e.NodeName)
		}
	}
	return found, nil
}

func (r *rig) wantList(token, namespace string, want map[string][]string) {
	r.Helper()
	got, err := r.list(token, namespace)
	r.must(err)
	if !maps.EqualFunc(got, want, slices.Equal) {
		r.Errorf("got %v, want %v", got, want)
	}
}

// debug returns GET /debug/cache, without blanks.
func (r *rig) debug() string {
	r.Helper()
	code, body := rawclient.Ask(r.Context(), http.MethodGet, r.hub.API+"/debug/cache")
	if code != http.StatusOK {
		r.Fatalf("GET /debug/cache: %d %s", code, body)
	}
	return strings.ReplaceAll(body, " ", "")
}
