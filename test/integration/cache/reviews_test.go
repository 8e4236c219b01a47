package cache

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/edgehub-io/edgehub/test/internal/poll"
)

const (
	tokenReviews  = "/apis/authentication.k8s.io/v1/tokenreviews"
	accessReviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
)

// ask posts a review as a kubelet does. It returns "yes" or "no", who or why, and what
// the answer says of the question.
func (c *client) ask(t *testing.T, review runtime.Object, contentType string) string {
	t.Helper()
	path := accessReviews
	if _, ok := review.(*authenticationv1.TokenReview); ok {
		path = tokenReviews
	}
	accept := contentType
	if contentType == protobuf {
		accept = kubelet
	}
	a := c.send(t, http.MethodPost, path, accept, contentType, encodeReview(t, review, contentType))
	if a.status != http.StatusCreated || a.header.Get("Content-Type") != contentType {
		t.Errorf("POST %s in %s: %v in %s", path, contentType, a, a.header.Get("Content-Type"))
		return a.String()
	}
	if path == tokenReviews {
		r := decodeAs[*authenticationv1.TokenReview](t, a)
		if !r.Status.Authenticated {
			return "no " + r.Status.Error
		}
		return fmt.Sprint("yes ", r.Status.User.Username, " ", r.Status.User.UID, " ", r.Status.User.Groups, " ", len(r.Spec.Token))
	}
	r := decodeAs[*authorizationv1.SubjectAccessReview](t, a)
	if !r.Status.Allowed {
		return "no " + r.Status.Reason
	}
	return fmt.Sprint("yes ", r.Status.Reason, " ", r.Spec.User, " ", r.Spec.Extra)
}

func whose(token string) *authenticationv1.TokenReview {
	return &authenticationv1.TokenReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"},
		Spec:     authenticationv1.TokenReviewSpec{Token: token},
	}
}

// may asks whether an account may do something with the ConfigMaps of its namespace.
func (s *space) may(account, verb string) *authorizationv1.SubjectAccessReview {
	return &authorizationv1.SubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SubjectAccessReview"},
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + s.name + ":" + account, Groups: []string{"system:serviceaccounts", "system:authenticated"},
			Extra:              map[string]authorizationv1.ExtraValue{"authentication.kubernetes.io/credential-id": {"JTI=1"}},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: s.name, Verb: verb, Version: "v1", Resource: "configmaps"},
		},
	}
}

// #20: what the cloud has said yes to is yes without it, for the node; all else is no,
// at once, and says why.
func TestReviewsByTheNodeAreAnsweredOffline(t *testing.T) {
	t.Parallel()
	for name, contentType := range map[string]string{"protobuf": protobuf, "JSON": asJSON} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, s := newHub(t), newSpace(t)
			token := s.account("alice")
			read := s.may("alice", "get")
			asked := []runtime.Object{whose(token), read}
			var said []string
			for _, r := range asked {
				said = append(said, h.node.ask(t, r, contentType))
				if !strings.HasPrefix(said[len(said)-1], "yes ") {
					t.Fatalf("with the cloud: %s", said[len(said)-1])
				}
			}
			never := []runtime.Object{whose(s.token("alice")), whose(forge(token)), whose("abc"), s.may("alice", "delete"), s.may("bob", "get")}
			h.node.ask(t, never[3], contentType) // the cloud has said no

			h.lose()
			for range 2 {
				for i, r := range asked {
					for who, c := range map[string]*client{"plain": h.node, "certificate": h.withCert()} {
						if got := c.ask(t, r, contentType); got != said[i] {
							t.Errorf("%s: %s, and with the cloud %s", who, got, said[i])
						}
					}
				}
				for _, r := range never {
					got := h.node.ask(t, r, contentType)
					if !strings.HasPrefix(got, "no edgehub: the cloud cannot be reached since 20") || !strings.Contains(got, "--offline-authorization-ttl") {
						t.Errorf("%T: %s", r, got)
					}
				}
				h.stop()
				h.start()
			}

			h.connect()
			s.forbid("alice")
			if got := h.node.ask(t, read, contentType); !strings.HasPrefix(got, "no ") {
				t.Fatalf("forbidden, with the cloud: %s", got)
			}
			h.lose()
			if got := h.node.ask(t, read, contentType); !strings.HasPrefix(got, "no edgehub: ") {
				t.Errorf("forbidden, without the cloud: %s", got)
			}
		})
	}
}

// #20: answers to the node are for nobody else, and answers to others are not kept.
func TestReviewsByOthersAreNotAnsweredOffline(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newSpace(t)
	token := s.account("alice")
	reviewer := h.as(s.token(s.reviewer("reviewer")))
	read := s.may("alice", "get")
	h.node.ask(t, read, asJSON)
	for _, r := range []runtime.Object{whose(token), s.may("alice", "list")} {
		if got := reviewer.ask(t, r, asJSON); !strings.HasPrefix(got, "yes ") {
			t.Fatalf("with the cloud: %s", got)
		}
	}
	h.lose()
	refused := func(c *client, path string, r runtime.Object) {
		t.Helper()
		c.refused(t, request{method: http.MethodPost, path: path, accept: asJSON, contentType: asJSON, body: encodeReview(t, r, asJSON)}, http.StatusServiceUnavailable)
	}
	refused(reviewer, tokenReviews, whose(token))
	refused(reviewer, accessReviews, read)
	refused(reviewer, accessReviews, s.may("alice", "list"))
	for _, r := range []runtime.Object{whose(token), s.may("alice", "list")} { // which the node did not ask
		if got := h.node.ask(t, r, asJSON); !strings.HasPrefix(got, "no edgehub: ") {
			t.Errorf("the node is told what another was told: %s", got)
		}
	}
	refused(h.node, accessReviews, whose(token)) // which is no question about access
}

// reviewer makes a service account that may post reviews.
func (s *space) reviewer(name string) string {
	s.t.Helper()
	s.account(name)
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: s.name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:auth-delegator"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: s.name}},
	}
	if _, err := s.env.client.RbacV1().ClusterRoleBindings().Create(s.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	c := newClient(s.env.ServerURL(), rootsOnly(s.t), true)
	defer c.close()
	c.token = s.token(name)
	body := encodeReview(s.t, s.may(name, "get"), asJSON)
	poll.Until(s.t, patience, name+" may post reviews", func() bool {
		return c.try(s.t.Context(), request{method: http.MethodPost, path: accessReviews, contentType: asJSON, body: body}).status == http.StatusCreated
	})
	return name
}

func encodeReview(t *testing.T, review runtime.Object, mediaType string) []byte {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), mediaType)
	if !ok {
		t.Fatalf("no serializer for %s", mediaType)
	}
	body, err := runtime.Encode(info.Serializer, review)
	if err != nil {
		t.Fatal(err)
	}
	return body
}
