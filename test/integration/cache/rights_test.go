package cache

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/test/internal/hubproc"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// An administrator takes the right to one Secret away, and its reader never asks again. What the same user may read
// still, by rights to other names, and what others read, stays. The hub's minutes are seconds here.
func TestARightThatWasTakenAwayEndsThoughNobodyAsks(t *testing.T) {
	t.Parallel()
	binary, err := hubproc.BuildWith(t.Context(), productRoot, t.TempDir(), "cache/repeat/confirm.go", map[string]string{
		"After = 10 * time.Minute\n": "After = 2 * time.Second\n", "Again = time.Minute\n": "Again = time.Second\n",
		"Idle = time.Minute\n": "Idle = time.Second\n", "RightsPause = 1500 * time.Millisecond\n": "RightsPause = 50 * time.Millisecond\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	h, s := newHub(t, func(o *hubproc.Options) { o.Binary = binary }), newSpace(t)
	s.create("c")
	secrets := "/api/v1/namespaces/" + s.name + "/secrets"
	one := func(name string) string { return secrets + "/" + name }
	named := func(name string) string { return secrets + "?fieldSelector=metadata.name%3D" + name }
	alice, bob := s.account("alice"), s.account("bob")
	for _, name := range []string{"taken", "kept"} {
		s.secret(name, "alice", "bob")
	}
	all := []string{one("taken"), named("taken"), one("kept"), named("kept"), s.path, s.one("c")}
	for _, token := range []string{alice, bob} {
		for _, path := range all {
			poll.Until(t, patience, "access to "+path, func() bool { return h.as(token).do(t, request{path: path, accept: asJSON}).status == http.StatusOK })
		}
	}
	user := "system:serviceaccount:" + s.name + ":alice"
	asked := func(mark int64) (n int) {
		for _, r := range env.audit.since(t, mark, user) {
			if strings.HasSuffix(r.RequestURI, "/selfsubjectaccessreviews") {
				n++
			}
		}
		return n
	}
	if err := env.client.RbacV1().RoleBindings(s.name).Delete(t.Context(), "alice-reads-taken", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, right := range []string{"get secrets in " + s.name + " taken", "list secrets in " + s.name + " where metadata.name=taken"} {
		poll.Until(t, patience, "the hub has learned that alice may not "+right, func() bool {
			return h.logged("a user may not read this any more", user, right)
		})
	}
	mark := env.audit.mark(t)
	poll.Until(t, patience, "the others were asked for twice more", func() bool { return asked(mark) > 2*len(all) })
	h.lose()
	for _, path := range all {
		h.as(bob).get(t, path, asJSON)
		if !strings.Contains(path, "taken") {
			h.as(alice).get(t, path, asJSON)
			continue
		}
		a := h.as(alice).refused(t, request{path: path, accept: asJSON}, http.StatusServiceUnavailable)
		if !strings.Contains(string(a.body), "the apiserver refused this when it was last asked") {
			t.Errorf("%s: %v", path, a)
		}
	}
}

// secret makes a Secret that accounts may read by its name, each by a binding of its own.
func (s *space) secret(name string, accounts ...string) {
	s.t.Helper()
	ctx := s.t.Context()
	if _, err := s.env.client.CoreV1().Secrets(s.name).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "reads-" + name}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{name}, Verbs: []string{"get", "list"},
	}}}
	if _, err := s.env.client.RbacV1().Roles(s.name).Create(ctx, role, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	for _, account := range accounts {
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: account + "-" + role.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: s.name}},
		}
		if _, err := s.env.client.RbacV1().RoleBindings(s.name).Create(ctx, binding, metav1.CreateOptions{}); err != nil {
			s.t.Fatal(err)
		}
	}
}
