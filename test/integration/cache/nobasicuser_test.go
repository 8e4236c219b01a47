package cache

import (
	"context"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// Where an administrator has taken the right to review oneself (system:basic-user) away, the
// hub asks as the node whose a token is, which every node may. It runs beside no other test:
// the right is everybody's.
func TestTokensAreReviewedAsTheNodeWhereNobodyMayReviewItself(t *testing.T) {
	h := makeHub(t, env.ServerURL())
	h.IdentifyAs(env.Cluster, "system:nodes")
	h.start()
	s := newSpace(t)
	first := s.account("alice")
	second := s.token("alice")
	bindings := env.client.RbacV1().ClusterRoleBindings()
	binding, err := bindings.Get(t.Context(), "system:basic-user", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	set := func(subjects []rbacv1.Subject) {
		t.Helper()
		changed := binding.DeepCopy()
		changed.ResourceVersion, changed.Subjects = "", subjects
		if _, err := bindings.Update(context.WithoutCancel(t.Context()), changed, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	set(nil)
	t.Cleanup(func() { set(binding.Subjects) })
	reader := newClient(env.ServerURL(), rootsOnly(t), true)
	defer reader.close()
	reader.token = first
	poll.Until(t, patience, "nobody may review itself", func() bool { return reviewItself(t, reader) == 403 })

	mark := env.audit.mark(t)
	h.as(first).servedList(t, s.path, protobuf)
	h.as(second).servedList(t, s.named("nobody"), protobuf)
	h.as(second).servedList(t, s.named("nobody"), protobuf)
	if got := reviewsOf(env.audit.since(t, mark, h.user)); got != 2 {
		t.Errorf("the node has asked %d times whose two tokens are", got)
	}
	h.cut()
	h.as(second).servedList(t, s.path, protobuf)
	h.as(first).servedList(t, s.named("nobody"), protobuf)
	h.as(unsigned(first)).refused(t, request{path: s.path, accept: protobuf}, 503)
}

func reviewItself(t *testing.T, c *client) int {
	t.Helper()
	return c.send(t, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", asJSON, asJSON,
		[]byte(`{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}`)).status
}
