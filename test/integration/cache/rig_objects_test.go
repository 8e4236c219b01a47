package cache

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// space is a namespace of one test, with the ConfigMaps that it is about.
type space struct {
	t    *testing.T
	env  environment
	name string
	path string // of its ConfigMaps
	maps corev1client.ConfigMapInterface
}

func newSpace(t *testing.T) *space {
	t.Helper()
	return newSpaceIn(t, env)
}

func newSpaceIn(t *testing.T, e environment) *space {
	t.Helper()
	name := fmt.Sprintf("s%08x", rand.Uint32())
	_, err := e.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := &space{t: t, env: e, name: name, path: "/api/v1/namespaces/" + name + "/configmaps", maps: e.client.CoreV1().ConfigMaps(name)}
	s.publishRootCA()
	return s
}

// publishRootCA makes the ConfigMap that the controller manager puts into each
// namespace at a time of its own, long after an apiserver that was away is back. It
// leaves alone what is there already and is the same.
func (s *space) publishRootCA() {
	s.t.Helper()
	published, err := s.env.client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(s.t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	same := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: published.Name, Annotations: published.Annotations}, Data: published.Data}
	if _, err := s.maps.Create(s.t.Context(), same, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		s.t.Fatal(err)
	}
}

// one is the path of a ConfigMap.
func (s *space) one(name string) string { return s.path + "/" + name }

func (s *space) selected(labels string) string {
	return s.path + "?labelSelector=" + strings.ReplaceAll(labels, "=", "%3D")
}

func (s *space) named(name string) string { return s.path + "?fieldSelector=metadata.name%3D" + name }

// create makes a ConfigMap at the apiserver, with labels "key=value".
func (s *space) create(name string, labels ...string) *corev1.ConfigMap {
	s.t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}, Data: map[string]string{"value": "first of " + name}}
	for _, label := range labels {
		key, value, _ := strings.Cut(label, "=")
		object.Labels[key] = value
	}
	object, err := s.maps.Create(s.t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return object
}

// fill makes n ConfigMaps, name-000 and so on.
func (s *space) fill(name string, n int, labels ...string) {
	s.t.Helper()
	for i := range n {
		s.create(fmt.Sprintf("%s-%03d", name, i), labels...)
	}
}

// large makes n ConfigMaps of so many bytes.
func (s *space) large(name string, n, size int) {
	s.t.Helper()
	for i := range n {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%03d", name, i)}, Data: map[string]string{"value": noise(size)}}
		if _, err := s.maps.Create(s.t.Context(), object, metav1.CreateOptions{}); err != nil {
			s.t.Fatal(err)
		}
	}
}

// noise is text of so many bytes that cannot be compressed much.
func noise(size int) string {
	const letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"
	out := make([]byte, size)
	for i := range out {
		out[i] = letters[rand.IntN(len(letters))]
	}
	return string(out)
}

// change changes a ConfigMap at the apiserver, and returns its new version.
func (s *space) change(name, value string) string {
	s.t.Helper()
	object, err := s.patch(s.t.Context(), name, value)
	if err != nil {
		s.t.Fatal(err)
	}
	return object.ResourceVersion
}

func (s *space) patch(ctx context.Context, name, value string) (*corev1.ConfigMap, error) {
	return s.maps.Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"data":{"value":%q}}`, value), metav1.PatchOptions{})
}

func (s *space) remove(name string) {
	s.t.Helper()
	if err := s.maps.Delete(s.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// account makes a service account that may read ConfigMaps here, and returns a token of its.
func (s *space) account(name string) string {
	s.t.Helper()
	ctx := s.t.Context()
	if _, err := s.env.client.CoreV1().ServiceAccounts(s.name).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	s.allow(name)
	return s.token(name)
}

func (s *space) token(account string) string {
	s.t.Helper()
	token, err := s.env.client.CoreV1().ServiceAccounts(s.name).CreateToken(s.t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return token.Status.Token
}

// allow lets an account read here. It returns when the apiserver has taken note.
func (s *space) allow(account string) {
	s.t.Helper()
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: s.name}},
	}
	if _, err := s.env.client.RbacV1().RoleBindings(s.name).Create(s.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	s.awaitAccess(account, true)
}

// forbid takes away what allow gave.
func (s *space) forbid(account string) {
	s.t.Helper()
	if err := s.env.client.RbacV1().RoleBindings(s.name).Delete(s.t.Context(), account, metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
	s.awaitAccess(account, false)
}

func (s *space) awaitAccess(account string, allowed bool) {
	s.t.Helper()
	tokenOnly := newClient(s.env.ServerURL(), rootsOnly(s.t), true)
	defer tokenOnly.close()
	tokenOnly.token = s.token(account)
	poll.Until(s.t, patience, fmt.Sprintf("access of %s is %v", account, allowed), func() bool {
		return (tokenOnly.try(s.t.Context(), request{path: s.path}).status == 200) == allowed
	})
}

// encode writes an object as an apiserver does.
func encode(t *testing.T, object runtime.Object, mediaType string) []byte {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), mediaType)
	if !ok {
		t.Fatalf("no serializer for %s", mediaType)
	}
	var out bytes.Buffer
	if err := scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion).Encode(object, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
