package attack

import (
	"fmt"
	"math/rand/v2"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// user is somebody with a namespace whose Secrets nobody else may read.
type user struct {
	t         *testing.T
	name      string // of the service account; empty for the node
	namespace string
	uid       types.UID // of the service account
	token     string
	marker    string // in all of the user's Secrets
}

// secretsPerUser is how many Secrets a user has.
const secretsPerUser = 5

// newUser makes a service account that may read the Secrets in a namespace of its own.
func newUser(t *testing.T, name string) *user {
	t.Helper()
	u := newSecrets(t, name)
	u.recreateAccount()
	u.bind(u.namespace, "view-secrets")
	u.awaitAccess(true)
	return u
}

// newSecrets makes a namespace with Secrets that hold a marker.
func newSecrets(t *testing.T, name string) *user {
	t.Helper()
	u := &user{t: t, name: name, namespace: fmt.Sprintf("%s-%08x", name, rand.Uint32()), marker: fmt.Sprintf("marker-of-%s-%016x", name, rand.Uint64())}
	_, err := env.admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: u.namespace}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range secretsPerUser {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secretName(i)}, StringData: map[string]string{"password": u.marker}}
		if _, err := env.admin.CoreV1().Secrets(u.namespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return u
}

func secretName(i int) string { return fmt.Sprintf("secret-%d", i) }

func (u *user) secrets() string { return "/api/v1/namespaces/" + u.namespace + "/secrets" }

func (u *user) secret(i int) string { return u.secrets() + "/" + secretName(i) }

// recreateAccount makes the service account, one of the same name and another UID if it
// is there, and a token of it.
func (u *user) recreateAccount() {
	u.t.Helper()
	accounts := env.admin.CoreV1().ServiceAccounts(u.namespace)
	if u.uid != "" {
		if err := accounts.Delete(u.t.Context(), u.name, metav1.DeleteOptions{}); err != nil {
			u.t.Fatal(err)
		}
	}
	account, err := accounts.Create(u.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: u.name}}, metav1.CreateOptions{})
	if err != nil {
		u.t.Fatal(err)
	}
	u.uid = account.UID
	u.token = u.newToken()
}

// newToken returns another token, for the apiserver if no audience is named.
func (u *user) newToken(audiences ...string) string {
	u.t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	issued, err := env.admin.CoreV1().ServiceAccounts(u.namespace).CreateToken(u.t.Context(), u.name, request, metav1.CreateOptions{})
	if err != nil {
		u.t.Fatal(err)
	}
	return issued.Status.Token
}

// username is what an apiserver calls the user.
func (u *user) username() string { return "system:serviceaccount:" + u.namespace + ":" + u.name }

// secretRoles are what users may do with the Secrets of a namespace.
var secretRoles = map[string][]string{ //nolint:gochecknoglobals // a table
	"view-secrets": {"get", "list", "watch"},
	"edit-secrets": {"get", "list", "watch", "update", "patch", "delete"},
}

// bind lets the user do in a namespace what a role allows.
func (u *user) bind(namespace, role string) {
	u.t.Helper()
	meta := metav1.ObjectMeta{Name: role + "-" + u.name}
	rules := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: secretRoles[role]}}
	if _, err := env.admin.RbacV1().Roles(namespace).Create(u.t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{}); err != nil {
		u.t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: u.name, Namespace: u.namespace}},
	}
	if _, err := env.admin.RbacV1().RoleBindings(namespace).Create(u.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		u.t.Fatal(err)
	}
}

// unbind takes the right to the user's own Secrets away.
func (u *user) unbind() {
	u.t.Helper()
	if err := env.admin.RbacV1().RoleBindings(u.namespace).Delete(u.t.Context(), "view-secrets-"+u.name, metav1.DeleteOptions{}); err != nil {
		u.t.Fatal(err)
	}
	u.awaitAccess(false)
}

// awaitAccess waits until the apiserver has taken note of a change of rights.
func (u *user) awaitAccess(allowed bool) {
	u.t.Helper()
	direct := newDirectClient(u.t)
	poll.Until(u.t, patience, fmt.Sprintf("access of %s to its Secrets is %v", u.name, allowed), func() bool {
		a := direct.try(u.t.Context(), request{path: u.secrets(), header: bearer(u.token)})
		return a.err == nil && (a.status == 200) == allowed
	})
}
