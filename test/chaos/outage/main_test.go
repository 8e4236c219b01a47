// Package outage_test is a randomized test of what clients have after an outage: kubelet,
// kube-proxy and a pod, as client-go reads for them, before a real hub and a real apiserver. In the
// outage they are shown what the cloud does not have: default/kubernetes leads to the hub, and the
// node and its pod have another status. The hub is killed or stopped within 30 s of the return, and
// started again. In the end they have what the apiserver has.
//
// RETURNS sets how many rounds are played, FIRST_SEED with which seed to begin. What is done, and
// when, follows from the seed; what the processes make of it does not.
package outage_test

import (
	"context"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/test/chaos/seeds"
	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/hubproc"
	"github.com/edgehub-io/edgehub/test/internal/testmain"
)

const (
	productRoot = "../../.."
	apiServers  = "kubernetes" // their Service and its slice, in the namespace default
	// defaultRounds are played beside each other: they wait more than they compute.
	defaultRounds = 8
)

var env struct { //nolint:gochecknoglobals // TestMain has no other way to hand it on
	*cluster.Cluster
	admin  kubernetes.Interface // straight to the apiserver
	hubBin string
}

func TestMain(m *testing.M) {
	testmain.AtOnce(defaultRounds)
	os.Exit(testmain.Main(m, "outage", prepare))
}

func prepare(ctx context.Context, s *testmain.Env) (err error) {
	if env.hubBin, err = hubproc.Build(ctx, productRoot, s.Dir); err != nil {
		return err
	}
	if env.Cluster, err = s.StartCluster(ctx, cluster.Options{}); err != nil {
		return err
	}
	if env.admin, err = kubernetes.NewForConfig(env.AdminConfig()); err != nil {
		return err
	}
	// A kube-proxy that uses the node's identity, and one with a token.
	for name, subject := range map[string]rbacv1.Subject{
		"nodes": {APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:nodes"},
		"pods":  {APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:" + metav1.NamespaceDefault},
	} {
		if _, err := env.admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "test-" + name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-proxier"},
			Subjects:   []rbacv1.Subject{subject},
		}, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	// The test cluster's apiserver does not write it: on loopback it has no address for it.
	_, err = env.admin.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: apiServers, Labels: map[string]string{discoveryv1.LabelServiceName: apiServers}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"198.51.100.1"}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}}},
		Ports:       []discoveryv1.EndpointPort{{Name: new("https"), Port: new(int32(6443)), Protocol: new(corev1.ProtocolTCP)}},
	}, metav1.CreateOptions{})
	return err
}

func TestWhatWasShownInAnOutageIsTakenBack(t *testing.T) {
	seeds.Each(t, "RETURNS", defaultRounds, func(t *testing.T, seed int) {
		t.Parallel()
		newRound(t, seed).play()
	})
}
