package cache

import (
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// agent makes a service account with flannel's rights, and returns a token of it.
func (s *space) agent() (token string) {
	s.t.Helper()
	ctx, roles := s.t.Context(), env.client.RbacV1()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: s.name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"nodes/status"}, Verbs: []string{"patch"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: role.ObjectMeta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "flannel", Namespace: s.name}},
	}
	token = s.account("flannel")
	if _, err := roles.ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	if _, err := roles.ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	return token
}

// what an agent of the pod network has written to its Node is written offline, too, by what an apiserver
// says of it, and sent as the agent.
func TestACNIAgentPatchesItsNodeOffline(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	path := h.makeNode()
	token := s.agent()
	const (
		annotation = "flannel.alpha.coreos.com/public-ip"
		program    = "flanneld/v0.0.0 (linux/amd64)"
	)
	address := func(a answer) string {
		t.Helper()
		return decodeAs[*corev1.Node](t, a).Annotations[annotation]
	}
	patch := func(body []byte) answer {
		t.Helper()
		return h.as(token).named(program).send(t, http.MethodPatch, path+"/status", asJSON, strategic, body)
	}
	move := func(ip string) []byte {
		return fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, annotation, ip)
	}
	// It starts before the install, and behind the hub, where it finds the annotation right.
	config := rest.AnonymousClientConfig(env.AdminConfig())
	config.BearerToken, config.UserAgent = token, program
	direct, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	poll.Until(t, patience, "the agent may patch", func() bool {
		_, err := direct.CoreV1().Nodes().PatchStatus(t.Context(), h.name, move("10.0.0.1"))
		return err == nil
	})
	const up = `{"status":{"conditions":[{"type":"NetworkUnavailable","status":"False","reason":"FlannelIsUp"}]}}`
	if a := patch([]byte(up)); a.status != http.StatusOK {
		t.Fatal(a)
	}
	poll.Until(t, patience, "the node and the agent have read one version", func() bool { // others write to the Node, too
		own, agents := decodeAs[*corev1.Node](t, h.node.get(t, path, protobuf)), decodeAs[*corev1.Node](t, h.as(token).get(t, path, asJSON))
		return own.ResourceVersion == agents.ResourceVersion
	})

	h.stop()
	h.cut()
	h.start()
	if a := patch(move("10.0.0.2")); a.status != http.StatusOK || address(a) != "10.0.0.2" {
		t.Fatal(a)
	}
	for who, c := range map[string]*client{"the node": h.node, "the agent": h.as(token)} {
		if got := address(c.get(t, path, asJSON)); got != "10.0.0.2" {
			t.Errorf("offline, %s reads %s", who, got)
		}
	}
	mark := env.audit.mark(t)
	h.connect()
	poll.Until(t, patience, "the cloud has the annotation", func() bool { return address(env.direct.get(t, path, asJSON)) == "10.0.0.2" })
	var sent int
	for _, r := range env.audit.since(t, mark, "system:serviceaccount:"+s.name+":flannel") {
		if r.Verb == "patch" && r.ObjectRef.Name == h.name {
			sent++
		}
	}
	if sent != 1 {
		t.Errorf("the agent's patch was sent %d times", sent)
	}
}
