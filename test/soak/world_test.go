package soak_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/hubproc"
)

const (
	namespace   = "soak"
	leases      = "kube-node-lease"
	services    = 20
	perGroup    = 4 // ConfigMaps that the pods of one account share
	groupLabel  = "group"
	atOnce      = 8 // requests while the world is made
	tokenExpiry = 3 * 3600
)

// world is one cluster, its only node, and what runs there.
type world struct {
	t        *testing.T
	cluster  *cluster.Cluster
	hub      *hubproc.Hub
	admin    kubernetes.Interface // straight to the apiserver
	problems *problems

	node      *client
	pods      []*client
	followers []*follower
}

func adminClient(t *testing.T, c *cluster.Cluster) kubernetes.Interface {
	t.Helper()
	admin, err := kubernetes.NewForConfig(c.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	return admin
}

func podName(i int) string      { return "pod-" + strconv.Itoa(i) }
func accountName(i int) string  { return "account-" + strconv.Itoa(i%accounts) }
func groupName(i, n int) string { return fmt.Sprintf("group-%d-%d", i%accounts, n) }

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// makeNode makes what the hub looks for as soon as it starts.
func (w *world) makeNode() {
	ctx := w.t.Context()
	_, err := w.admin.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.hub.Name}}, metav1.CreateOptions{})
	w.must(err)
	_, err = w.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	w.must(err)
}

// fill makes what pods need, the pods, and a client for each, whose token the node has
// asked for through the hub, as kubelet does.
func (w *world) fill() {
	ctx := w.t.Context()
	w.node = newNodeClient(w)
	w.grant(ctx)
	w.inParallel(services, func(i int) error {
		_, err := w.admin.CoreV1().Services(namespace).Create(ctx, newService(i), metav1.CreateOptions{})
		return err
	})
	w.inParallel(accounts*perGroup, func(i int) error {
		return w.createConfigMap(ctx, groupName(i, i/accounts), i)
	})
	w.inParallel(accounts, func(i int) error {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: accountName(i)}}
		_, err := w.admin.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{})
		return err
	})
	_, err := w.admin.CoordinationV1().Leases(leases).Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: w.hub.Name}}, metav1.CreateOptions{})
	w.must(err)
	w.pods = make([]*client, pods)
	var mu sync.Mutex
	w.inParallel(pods, func(i int) error {
		if err := w.createConfigMap(ctx, podName(i), -1); err != nil {
			return err
		}
		pod, err := w.admin.CoreV1().Pods(namespace).Create(ctx, newPod(i, w.hub.Name), metav1.CreateOptions{})
		if err != nil {
			return err
		}
		c, err := newPodClient(w, i, pod)
		mu.Lock()
		defer mu.Unlock()
		w.pods[i] = c
		return err
	})
}

func (w *world) inParallel(n int, do func(i int) error) {
	w.t.Helper()
	var all errgroup.Group
	all.SetLimit(atOnce)
	for i := range n {
		all.Go(func() error { return do(i) })
	}
	w.must(all.Wait())
}

func (w *world) grant(ctx context.Context) {
	about := metav1.ObjectMeta{Name: "pods"}
	role := &rbacv1.Role{ObjectMeta: about, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps", "services"}, Verbs: []string{"get", "list", "watch", "patch"}},
	}}
	_, err := w.admin.RbacV1().Roles(namespace).Create(ctx, role, metav1.CreateOptions{})
	w.must(err)
	_, err = w.admin.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: about,
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:serviceaccounts:" + namespace}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: about.Name},
	}, metav1.CreateOptions{})
	w.must(err)
}

// createConfigMap makes one that belongs to the group of an account, or to none: -1.
func (w *world) createConfigMap(ctx context.Context, name string, group int) error {
	_, err := w.admin.CoreV1().ConfigMaps(namespace).Create(ctx, newConfigMap(name, group), metav1.CreateOptions{})
	return err
}

func newConfigMap(name string, group int) *corev1.ConfigMap {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"config": fmt.Sprintf("%0512d", 0)}}
	if group >= 0 {
		m.Labels = map[string]string{groupLabel: accountName(group)}
	}
	return m
}

func newService(i int) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "service-" + strconv.Itoa(i)},
		Spec:       corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Port: 80}}},
	}
}

// newPod is for the node, and stays there whatever the state of the node.
func newPod(i int, node string) *corev1.Pod {
	config := corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: podName(i)}}}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: podName(i)},
		Spec: corev1.PodSpec{
			NodeName:           node,
			ServiceAccountName: accountName(i),
			Containers:         []corev1.Container{{Name: "app", Image: "registry.example.com/app:1"}},
			Volumes:            []corev1.Volume{{Name: "config", VolumeSource: config}},
			Tolerations:        []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}
}

// tokenRequest is what kubelet asks for, for a pod.
func tokenRequest(name string, uid types.UID) *authenticationv1.TokenRequest {
	expiry := int64(tokenExpiry)
	return &authenticationv1.TokenRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"},
		Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: &expiry,
			BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: name, UID: uid},
		},
	}
}
