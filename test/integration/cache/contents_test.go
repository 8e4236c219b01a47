package cache

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cache/wire"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// Equal names and resourceVersions are not equal bytes. These tests make other bytes of
// the same version, in all the ways there are, and look whether anybody reads what it
// was not sent.

// mergePatch is the Content-Type of a patch.
const mergePatch = "application/merge-patch+json"

// reads is what a client was sent, to be compared with what it is sent offline.
type reads map[string]answer // by path and Accept header

func (r reads) read(t *testing.T, c *client, accept string, paths ...string) {
	t.Helper()
	for _, path := range paths {
		r[path+" "+accept] = c.get(t, path, accept)
	}
}

// same reads all of it again, and fails the test where it is not the same.
func (r reads) same(t *testing.T, when string, c *client) {
	t.Helper()
	for key, before := range r {
		path, accept, _ := strings.Cut(key, " ")
		a := c.do(t, request{path: path, accept: accept})
		if a.status != http.StatusOK || !bytes.Equal(a.body, before.body) {
			t.Errorf("%s, %s (%s) is not what was read: %v\nbut %v", when, path, accept, before, a)
		}
		if strings.HasPrefix(a.header.Get("Content-Type"), asJSON) && !json.Valid(a.body) {
			t.Errorf("%s, %s is no JSON: %v", when, path, a)
		}
	}
}

// issue 12, number 7: a dry run of one user, however it is asked for, shows neither in
// what others read offline nor in what its own user reads.
func TestContents_ADryRunChangesNothing(t *testing.T) {
	t.Parallel()
	queries := []string{
		"dryRun=All", "dr%79Run=All", "%64%72%79%52%75%6e=%41%6c%6c", "fieldManager=mallory&dr%79Run=All", "dr%79Run=All&dr%79Run=All",
	}
	for size, value := range map[string]string{"the same length": "VALUE", "another length": strings.Repeat("longer than it was ", 50)} {
		t.Run(size, func(t *testing.T) {
			t.Parallel()
			h, s := newHub(t), newSpace(t)
			s.create("c")
			s.create("d")
			s.change("c", "value")
			alice, mallory := h.as(s.account("alice")), h.as(s.account("mallory"))
			s.grant("mallory", "", "configmaps", "patch", "update")
			hers, nodes := reads{}, reads{}
			for _, accept := range []string{protobuf, asJSON} {
				hers.read(t, alice, accept, s.path, s.named("c"))
				nodes.read(t, h.node, accept, s.path, s.one("c"))
			}
			for _, query := range queries {
				for _, accept := range []string{protobuf, asJSON} {
					s.dryRuns(mallory, query, accept, value)
				}
			}
			h.cut()
			check := func(when string) {
				t.Helper()
				hers.same(t, when+", alice", alice)
				nodes.same(t, when+", the node", h.node)
				for _, accept := range []string{protobuf, asJSON} { // what a dry run shows was never read
					mallory.refused(t, request{path: s.one("c"), accept: accept}, http.StatusServiceUnavailable)
				}
			}
			check("offline")
			h.stop()
			h.start()
			check("after a restart")
		})
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

// grant lets an account do more here. It returns when the apiserver has taken note.
func (s *space) grant(account, group, resource string, verbs ...string) {
	s.t.Helper()
	ctx, meta := s.t.Context(), metav1.ObjectMeta{Name: account + "-" + resource}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}}}
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
		poll.Until(s.t, patience, account+" may "+verb+" "+resource, func() bool {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User:               "system:serviceaccount:" + s.name + ":" + account,
				ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: s.name, Verb: verb, Group: group, Resource: resource},
			}}
			review, err := s.env.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			return err == nil && review.Status.Allowed
		})
	}
}

// issue 12, number 8: a CustomResourceDefinition gains a default between a LIST and a
// GET. The object has not changed its version, but its bytes: the list stays what it was.
func TestContents_ADefaultOfACustomResource(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	things := defineThings(t, s.name+".example")
	for i := range 3 {
		things.create(t, s.name, fmt.Sprintf("t-%d", i))
	}
	h := newHub(t)
	alice := h.as(s.account("alice"))
	s.grant("alice", things.gvr.Group, "things", "get")
	path := "/apis/" + things.gvr.Group + "/v1/namespaces/" + s.name + "/things"
	one := path + "/t-1"
	lists, objects := reads{}, reads{}
	lists.read(t, h.node, asJSON, path)
	before := env.direct.get(t, one, asJSON)
	things.addDefault(t)
	poll.Until(t, patience, "the apiserver applies the default", func() bool {
		return bytes.Contains(env.direct.get(t, one, asJSON).body, []byte("byDefault"))
	})
	objects.read(t, alice, asJSON, one)
	if a := objects[one+" "+asJSON]; metadataOf(t, a) != metadataOf(t, before) || bytes.Equal(a.body, before.body) {
		t.Fatalf("the object is another, or the same: %v", a)
	}
	h.node.get(t, one, asJSON)
	h.cut()
	lists.same(t, "offline", h.node)
	objects.same(t, "offline", alice)
	objects.same(t, "offline", h.node)
	h.stop()
	h.start()
	lists.same(t, "after a restart", h.node)
	h.connect()
	lists.read(t, h.node, asJSON, path)
	if a := lists[path+" "+asJSON]; bytes.Count(a.body, []byte("byDefault")) != 3 {
		t.Fatalf("the list has no defaults: %v", a)
	}
	h.cut()
	lists.same(t, "after it was listed again", h.node)
}

// addDefault gives the kind a default for a field that no thing has.
func (th *things) addDefault(t *testing.T) {
	t.Helper()
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	const patch = `[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties","value":{"color":{"type":"string","default":"byDefault"}}}]`
	_, err := th.client.Resource(crds).Patch(t.Context(), "things."+th.gvr.Group, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}
