package controller_test

import (
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// The namespace enforces the restricted Pod Security Standard, so pods are proof
// that the Deployment meets it.
func TestDeployMakesTwoReplicas(t *testing.T) {
	poll.Eventually(t, "there are two pods of the controller", func() bool {
		list, err := env.Admin.CoreV1().Pods(systemNamespace).List(t.Context(), metav1.ListOptions{
			LabelSelector: "app.kubernetes.io/name=edgehub-controller"})
		return err == nil && len(list.Items) == 2
	})
}

func TestTheAccountMayDoNothingElse(t *testing.T) {
	client, err := kubernetes.NewForConfig(env.AccountConfig())
	if err != nil {
		t.Fatal(err)
	}
	attributes := func(verb, group, resource, subresource, namespace string) authorizationv1.ResourceAttributes {
		return authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: resource, Subresource: subresource, Namespace: namespace}
	}
	tests := map[string]struct {
		attributes authorizationv1.ResourceAttributes
		want       bool
	}{
		"watch DaemonSets, as a check of this test": {attributes("watch", "apps", "daemonsets", "", ""), true},
		"read a Secret":                     {attributes("get", "", "secrets", "", "default"), false},
		"delete all pods at once":           {attributes("deletecollection", "", "pods", "", "default"), false},
		"create a pod":                      {attributes("create", "", "pods", "", "default"), false},
		"replace a pod":                     {attributes("update", "", "pods", "", "default"), false},
		"resize a pod":                      {attributes("patch", "", "pods", "resize", "default"), false},
		"add a container to a pod":          {attributes("patch", "", "pods", "ephemeralcontainers", "default"), false},
		"replace a pod's status":            {attributes("update", "", "pods", "status", "default"), false},
		"run a command in a pod":            {attributes("create", "", "pods", "exec", "default"), false},
		"change a DaemonSet":                {attributes("patch", "apps", "daemonsets", "", "default"), false},
		"change a ControllerRevision":       {attributes("update", "apps", "controllerrevisions", "", "default"), false},
		"take a lease of others":            {attributes("update", "coordination.k8s.io", "leases", "", "kube-system"), false},
		"take another lease beside its own": {attributes("update", "coordination.k8s.io", "leases", "", systemNamespace), false},
		"change a node":                     {attributes("patch", "", "nodes", "", ""), false},
		"replace a node's status":           {attributes("update", "", "nodes", "status", ""), false},
		"change a StatefulSet":              {attributes("patch", "apps", "statefulsets", "", "default"), false},
		"change a StatefulSet's status":     {attributes("patch", "apps", "statefulsets", "status", "default"), true},
		"replace a DaemonSet's status":      {attributes("update", "apps", "daemonsets", "status", "default"), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			review := &authorizationv1.SelfSubjectAccessReview{}
			review.Spec.ResourceAttributes = &tt.attributes
			got, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got.Status.Allowed != tt.want {
				t.Errorf("allowed is %t, want %t: %s", got.Status.Allowed, tt.want, got.Status.Reason)
			}
		})
	}
}
