package cache

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/cache/wire"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// mergePatch is the Content-Type of a patch.
const mergePatch = "application/merge-patch+json"

// issue 12, number 7: a dry run of one user, however it is asked for, has other bytes at the same version.
// They show neither in what others read offline nor in what its own user reads.
func TestContents_ADryRunChangesNothing(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	s.create("c")
	s.create("d")
	s.change("c", "value")
	alice, mallory := h.as(s.account("alice")), h.as(s.account("mallory"))
	s.allowWrites("mallory")
	type key struct {
		who          *client
		path, accept string
	}
	was := map[key]answer{}
	for _, k := range []key{
		{alice, s.path, protobuf}, {alice, s.named("c"), protobuf}, {h.node, s.path, asJSON}, {h.node, s.named("c"), asJSON},
		{h.node, s.one("c"), protobuf}, {h.node, s.one("c"), asJSON},
	} {
		was[k] = k.who.get(t, k.path, k.accept)
	}
	for _, query := range []string{"dryRun=All", "fieldManager=mallory&dr%79Run=All"} {
		for _, accept := range []string{protobuf, asJSON} {
			for _, value := range []string{"VALUE", strings.Repeat("of another length", 50)} {
				s.dryRuns(mallory, query, accept, value)
			}
		}
	}
	h.cut()
	for _, when := range []string{"offline", "after a restart"} {
		for k, before := range was {
			if a := k.who.do(t, request{path: k.path, accept: k.accept}); a.status != http.StatusOK || !bytes.Equal(a.body, before.body) {
				t.Errorf("%s, %s (%s) is not what was read: %v\nbut %v", when, k.path, k.accept, before, a)
			}
		}
		for _, accept := range []string{protobuf, asJSON} { // what a dry run shows was never read
			mallory.refused(t, request{path: s.one("c"), accept: accept}, http.StatusServiceUnavailable)
		}
		h.stop()
		h.start()
	}
}

// dryRuns makes dry runs of a PATCH and a PUT of c, whose answers have to show the value
// at the version that there is.
func (s *space) dryRuns(c *client, query, accept, value string) {
	s.t.Helper()
	object, err := s.maps.Get(s.t.Context(), "c", metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	version := object.ResourceVersion
	object.Data["value"] = value
	for _, r := range []request{
		{method: http.MethodPatch, contentType: mergePatch, body: fmt.Appendf(nil, `{"data":{"value":%q}}`, value)},
		{method: http.MethodPut, contentType: asJSON, body: encode(s.t, object, asJSON)},
	} {
		r.path, r.accept = s.one("c")+"?"+query, accept
		a := c.do(s.t, r)
		if a.status != http.StatusOK || !bytes.Contains(a.body, []byte(value)) || metadataOf(s.t, a) != string(object.UID)+" at "+version {
			s.t.Fatalf("the dry run shows nothing: %v", a)
		}
	}
}

// metadataOf returns which object this is, at which version.
func metadataOf(t *testing.T, a answer) string {
	t.Helper()
	encoding := wire.JSON
	if strings.Contains(a.header.Get("Content-Type"), "protobuf") {
		encoding = wire.Protobuf
	}
	m, err := wire.Inspect(encoding, a.body)
	if err != nil {
		t.Fatalf("%v: %v", err, a)
	}
	return string(m.UID) + " at " + string(m.ResourceVersion)
}

// allowWrites lets an account write ConfigMaps here. It returns when the apiserver has taken note.
func (s *space) allowWrites(account string) {
	s.t.Helper()
	ctx, meta := s.t.Context(), metav1.ObjectMeta{Name: account + "-writes"}
	verbs := []string{"patch", "update"}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: verbs}}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: s.name}},
	}
	_, err := s.env.client.RbacV1().Roles(s.name).Create(ctx, role, metav1.CreateOptions{})
	if err == nil {
		_, err = s.env.client.RbacV1().RoleBindings(s.name).Create(ctx, binding, metav1.CreateOptions{})
	}
	if err != nil {
		s.t.Fatal(err)
	}
	for _, verb := range verbs {
		poll.Until(s.t, patience, account+" may "+verb, func() bool {
			review := &authorizationv1.SubjectAccessReview{Spec: s.may(account, verb).Spec}
			review, err := s.env.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			return err == nil && review.Status.Allowed
		})
	}
}
