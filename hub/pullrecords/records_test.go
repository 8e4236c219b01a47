package pullrecords

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

const (
	image = "registry.example:5000/shop/web:v2"
	id    = "sha256:c0ffee"
)

// pulled is a record as kubelet 1.37.2 writes it (fsPullRecordsAccessor.WriteImagePulledRecord).
func pulled(mapping string) string {
	return `{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","lastUpdatedTime":"2026-11-29T10:00:00Z","imageRef":"sha256:c0ffee","credentialMapping":{` + mapping + "}}\n"
}

// What kubelet records of a pull without credentials or with the node's, with a Secret's, and with a service account's.
const (
	byNode    = `"registry.example:5000/shop/web":{"nodePodsAccessible":true}`
	bySecret  = `"registry.example:5000/shop/web":{"kubernetesSecrets":[{"uid":"s-1","namespace":"shop","name":"login","credentialHash":"9c0e"}]}`
	byAccount = `"registry.example:5000/shop/web":{"kubernetesServiceAccounts":[{"uid":"a-1","namespace":"shop","name":"default"}]}`
	// byUnknown is what it has after it was killed during a pull.
	byUnknown = `{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","lastUpdatedTime":"2026-11-29T10:00:00Z","imageRef":"sha256:c0ffee"}` + "\n"
)

// Names of the files of id and image, by sha256sum.
const (
	recordFile = "pulled/sha256-dc07a0f29c20bbf54b8e3498adee871432fd9eef4ed2177d66af26b7efcb378d"
	intentFile = "pulling/sha256-0a4a5a87b9b62a6072875e860a91fcffdce8f20d21c28dc851c0b7d271c8fd43"
)

const asks = "kubelet would first ask the registry for image " + image + ": "

// An image that is on the node, and a container that is about to be started from it without the network.
func TestWhetherKubeletStartsAnImage(t *testing.T) {
	login := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "login", UID: "s-1"}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"registry.example:5000":{"username":"u","password":"p"}}}`)},
	}
	secret := func(change func(*corev1.Secret)) *corev1.Secret { s := login.DeepCopy(); change(s); return s }
	const known = "it has pulled it, and has no record that this pod's credentials were accepted"
	many := strings.Repeat(`{"uid":"o","namespace":"shop","name":"other"},`, 99)
	for name, tt := range map[string]struct {
		record  string // "": none
		intent  bool
		config  string // besides the version
		secrets map[string]any
		image   string // image, if empty
		says    string // "": it starts
	}{
		// What the hub has pulled.
		"no record":                                {},
		"no record, and the policy NeverVerify":    {config: "imagePullCredentialsVerificationPolicy: NeverVerify"},
		"no record, and the policy AlwaysVerify":   {config: "imagePullCredentialsVerificationPolicy: AlwaysVerify", says: asks + "its imagePullCredentialsVerificationPolicy is AlwaysVerify"},
		"no record, and an allowlist without it":   {config: "imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: [registry.example:5000/sho, other.example/*]", says: asks + "its imagePullCredentialsVerificationPolicy is NeverVerifyAllowlistedImages"},
		"no record, and an allowlist with its kin": {config: "imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: [other.example/*, registry.example:5000/shop/*]"},
		"no record, and an allowlist with it":      {config: "imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: [registry.example/web]", image: "registry.example/web"},
		"no record, and an unknown policy":         {config: "imagePullCredentialsVerificationPolicy: Sometimes", says: `imagePullCredentialsVerificationPolicy is "Sometimes", which this hub does not know`},
		"kubelet has begun to pull it":             {intent: true, says: asks + "it has begun to pull it"},

		// What kubelet has pulled.
		"open to all pods": {record: pulled(byNode), config: "imagePullCredentialsVerificationPolicy: AlwaysVerify"},
		"open to all pods, and a configuration of no version": {record: pulled(byNode), config: "apiVersion: v2"},
		"under another name":                             {record: pulled(strings.ReplaceAll(byNode, "shop", "copy")), says: asks + known},
		"under another name, and the policy NeverVerify": {record: pulled(strings.ReplaceAll(byNode, "shop", "copy")), config: "imagePullCredentialsVerificationPolicy: NeverVerify"},
		"by a kubelet that was killed meanwhile":         {record: byUnknown, says: asks + known},
		"by a service account":                           {record: pulled(byAccount), says: asks + known},
		"with another tag":                               {record: pulled(byNode), image: "registry.example:5000/shop/web:v1"},
		"without a tag":                                  {record: pulled(byNode), image: "registry.example:5000/shop/web"},
		"with a digest":                                  {record: pulled(byNode), image: "registry.example:5000/shop/web:v1@sha256:" + strings.Repeat("0", 64)},
		"with the pod's secret":                          {record: pulled(bySecret), secrets: map[string]any{"login": login}, config: "imagePullCredentialsVerificationPolicy: AlwaysVerify"},
		"with the pod's secret, whose password has changed": {record: pulled(bySecret), secrets: map[string]any{"login": secret(func(s *corev1.Secret) {
			s.Data[corev1.DockerConfigJsonKey] = []byte(`{"auths":{"registry.example:5000":{"username":"u","password":"q"}}}`)
		})}},
		"with the first of the pod's secrets":              {record: pulled(bySecret), secrets: map[string]any{"login": login, "other": secret(func(s *corev1.Secret) { s.Name, s.UID = "other", "s-2" })}},
		"with a secret that the pod does not have":         {record: pulled(bySecret), secrets: map[string]any{"other": secret(func(s *corev1.Secret) { s.Name, s.UID = "other", "s-2" })}, says: asks + known},
		"with a secret of that name that was made anew":    {record: pulled(bySecret), secrets: map[string]any{"login": secret(func(s *corev1.Secret) { s.UID = "s-2" })}, says: asks + known},
		"with a secret that is for another registry now":   {record: pulled(bySecret), secrets: map[string]any{"login": secret(func(s *corev1.Secret) { s.Data[corev1.DockerConfigJsonKey] = []byte(`{"auths":{"other.example":{}}}`) })}, says: asks + known},
		"with one of more secrets than kubelet compares":   {record: pulled(strings.Replace(bySecret, "[", "["+many, 1)), secrets: map[string]any{"login": login}, says: asks + known},
		"with the pod's secret, and one that is gone":      {record: pulled(bySecret), secrets: map[string]any{"login": login, "gone": apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, "gone")}},
		"with the pod's secret, and one that is no secret": {record: pulled(bySecret), secrets: map[string]any{"login": login, "z": secret(func(s *corev1.Secret) { s.Data[corev1.DockerConfigJsonKey] = []byte("}") })}, says: "it is not JSON"},
		"with a secret that the hub does not have":         {record: pulled(bySecret), secrets: map[string]any{"login": errors.New("not cached")}, says: "read secret shop/login: not cached"},

		// Records of other kubelets, and damaged ones.
		"of an earlier kubelet":           {record: strings.Replace(pulled(byNode), "v1beta1", "v1alpha1", 1)},
		"of a later kubelet":              {record: strings.Replace(pulled(byNode), "v1beta1", "v1", 1), says: `a "ImagePulledRecord" of "kubelet.config.k8s.io/v1"`},
		"with a field of a later kubelet": {record: strings.Replace(pulled(byNode), `{"nodePods`, `{"expires":"2026-11-29T10:00:00Z","nodePods`, 1), says: `unknown field "expires"`},
		"of another image":                {record: strings.Replace(pulled(byNode), id, "sha256:bad", 1), says: `about "sha256:bad"`},
		"of another kind":                 {record: strings.Replace(pulled(byNode), "ImagePulledRecord", "ImagePullIntent", 1), says: `a "ImagePullIntent"`},
		"that is torn":                    {record: pulled(byNode)[:150], says: "it is not known whether kubelet starts image " + image + " without its registry: read kubelet's record of the image: "},
		"that is empty":                   {record: " ", says: "this hub does not know"},
		"no record, and another version":  {config: "apiVersion: kubelet.config.k8s.io/v1", says: `the version "kubelet.config.k8s.io/v1", which this hub does not know`},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			if tt.record != "" {
				n.write("kubelet/image_manager/"+recordFile, tt.record)
			}
			if tt.intent {
				n.write("kubelet/image_manager/"+intentFile, `{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"`+image+`"}`+"\n")
			}
			config := tt.config
			if !strings.Contains(config, "apiVersion") {
				config += "\napiVersion: kubelet.config.k8s.io/v1beta1\n"
			}
			n.write("etc/kubelet.yaml", "kind: KubeletConfiguration\n"+config)
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: types.UID("p")}}
			for _, name := range slices.Sorted(maps.Keys(tt.secrets)) {
				pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
			}
			n.Secret = func(_ context.Context, namespace, name string) (*corev1.Secret, error) {
				switch s := tt.secrets[name].(type) {
				case *corev1.Secret:
					if namespace == s.Namespace {
						return s, nil
					}
				case error:
					return nil, s
				}
				return nil, fmt.Errorf("secret %s/%s is asked for", namespace, name)
			}
			if tt.image == "" {
				tt.image = image
			}
			if err := n.Check(t.Context(), pod, tt.image, id); (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
				t.Error(err)
			}
		})
	}
}

// node has a kubelet, its --root-dir and its configuration.
type node struct {
	Records
	t   *testing.T
	dir string
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, dir: t.TempDir()}
	n.RootDir, n.Proc = filepath.Join(n.dir, "kubelet"), filepath.Join(n.dir, "proc")
	n.write("proc/7/cmdline", "kubelet\x00--config=/etc/kubelet.yaml\x00--root-dir=/kubelet\x00")
	n.write("proc/7/status", "Name:\tkubelet\nUid:\t0\t0\t0\t0\n")
	n.write("kubelet/pods/x", "")
	n.write("kubelet/image_manager/pulled/x", "")
	if err := os.Symlink("../..", filepath.Join(n.dir, "proc", "7", "root")); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *node) write(path, text string) {
	n.t.Helper()
	path = filepath.Join(n.dir, path)
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

func TestAKubeletWithoutRecords(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(t *testing.T, n *node)
		says   string
	}{
		"an older one":                      {func(t *testing.T, n *node) { n.remove("kubelet/image_manager"); n.remove("proc") }, ""},
		"another folder":                    {func(t *testing.T, n *node) { n.remove("kubelet/image_manager"); n.remove("kubelet/pods") }, "kubelet/pods: no such file"},
		"no folder is known":                {func(_ *testing.T, n *node) { n.RootDir = "" }, "kubelet's --root-dir is not known"},
		"a folder that the hub cannot read": {func(t *testing.T, n *node) { n.remove("kubelet/image_manager"); n.write("kubelet/image_manager", "") }, "not a directory"},
		"a kubelet that does not run":       {func(t *testing.T, n *node) { n.remove("proc/7") }, "0 processes"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			tt.change(t, n)
			if err := n.Check(t.Context(), &corev1.Pod{}, image, id); (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
				t.Error(err)
			}
		})
	}
}

func (n *node) remove(path string) {
	n.t.Helper()
	if err := os.RemoveAll(filepath.Join(n.dir, path)); err != nil {
		n.t.Fatal(err)
	}
}
