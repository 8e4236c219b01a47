// Package pullrecords finds out whether kubelet starts a container from an image that is on the node, or asks the image's registry
// first, which takes the network.
//
// From Kubernetes 1.35 on (KubeletEnsureSecretPulledImages), kubelet keeps a record of each image that it has pulled: by the
// image's ID, and in it by the names that it was pulled under, which credentials the registry has accepted. An image that others
// have pulled, such as the hub, has none. A present image is used, with the pull policies IfNotPresent and Never, if its record
// has it open to all pods, or names a Secret of this one. Otherwise imagePullCredentialsVerificationPolicy decides: by default,
// kubelet asks if there is a record, or if it has begun to pull. (pkg/kubelet/images/pullmanager, as of 1.37.2.)
//
// What is not known is an error: the caller must not rely on the image then. kubelet may also start what Check objects to. It
// knows Secrets by their content as well as by UID, and may have credentials of a service account; up to 1.35, its records have
// docker.io/library/web for what a pod calls web, and from 1.36 on, entries of its allowlist stand for all tags.
//
// Only root may write records and configuration. kubelet has read them earlier, and does not see what others write there.
package pullrecords

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/edgehub-io/edgehub/imagepull/keyring"
)

// Records are those of the node's kubelet. All fields are required. It is safe for concurrent use, and keeps nothing.
type Records struct {
	RootDir string // kubelet's --root-dir; "" if it is not known
	Proc    string // where the kernel shows processes: /proc
	Secret  func(ctx context.Context, namespace, name string) (*corev1.Secret, error)
}

// record is an ImagePulledRecord of kubelet.config.k8s.io.
type record struct {
	metav1.TypeMeta `json:",inline"`

	LastUpdatedTime   metav1.Time            `json:"lastUpdatedTime"`
	ImageRef          string                 `json:"imageRef"`          // CRI's ID
	CredentialMapping map[string]credentials `json:"credentialMapping"` // by name, without tag and digest
}

// credentials are those with which an image was pulled under one name.
type credentials struct {
	Secrets         []source `json:"kubernetesSecrets"`
	ServiceAccounts []source `json:"kubernetesServiceAccounts"`
	Everybody       bool     `json:"nodePodsAccessible"` // they are the node's, or none
}

// source is a Secret or ServiceAccount.
type source struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Hash      string `json:"credentialHash"`
}

// Check returns why kubelet would not start a container of a pod without the registry of the image, or why that is not known, as
// one line for people. The image is on the node, the pod names it thus, and id is its ID in CRI. The container's pull policy is
// not Always. The answer holds until kubelet pulls the image for another pod, or is configured otherwise.
func (r Records) Check(ctx context.Context, pod *corev1.Pod, image, id string) error {
	why, err := r.asks(ctx, pod, image, id)
	switch {
	case err != nil:
		return fmt.Errorf("it is not known whether kubelet starts image %s without its registry: %w", image, err)
	case why != "":
		return fmt.Errorf("kubelet would first ask the registry for image %s: %s", image, why)
	}
	return nil
}

// asks returns why kubelet asks the registry, or "" if it does not.
func (r Records) asks(ctx context.Context, pod *corev1.Pod, image, id string) (why string, _ error) {
	if older, err := r.keepsNone(); older || err != nil {
		return "", err
	}
	rec, recorded, err := r.pulled(id)
	if err != nil {
		return "", err
	}
	if recorded {
		if granted, err := r.grants(ctx, rec.CredentialMapping[nameOf(image)], pod, image); granted || err != nil {
			return "", err
		}
		why = "it has pulled it, and has no record that this pod's credentials were accepted"
	} else {
		_, err := os.Stat(r.file("pulling", image))
		switch {
		case err == nil:
			why = "it has begun to pull it"
		case !errors.Is(err, fs.ErrNotExist):
			return "", err
		}
	}
	return r.asksBy(image, why)
}

// keepsNone reports whether the node's kubelet keeps no records: an older one, or without the feature since ever.
func (r Records) keepsNone() (bool, error) {
	if r.RootDir == "" {
		return false, errors.New("kubelet's --root-dir is not known")
	}
	_, err := os.Stat(filepath.Join(r.RootDir, "image_manager"))
	if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	// Every kubelet has this one. Where it is missing, --kubelet-root-dir is wrong.
	_, err = os.Stat(filepath.Join(r.RootDir, "pods"))
	return err == nil, err
}

// file is where kubelet keeps a record: of an image that it has pulled, by its ID, or of one that it is pulling, by its name.
func (r Records) file(folder, key string) string {
	return filepath.Join(r.RootDir, "image_manager", folder, fmt.Sprintf("sha256-%x", sha256.Sum256([]byte(key))))
}

// pulled reads the record of an image. An unknown version or field is an error, as for kubelet.
func (r Records) pulled(id string) (rec record, ok bool, _ error) {
	text, err := os.ReadFile(r.file("pulled", id))
	if errors.Is(err, fs.ErrNotExist) {
		return rec, false, nil
	}
	if err == nil {
		err = yaml.UnmarshalStrict(text, &rec)
	}
	if err == nil && (rec.Kind != "ImagePulledRecord" || rec.ImageRef != id || !slices.Contains([]string{apiGroup + "/v1beta1", apiGroup + "/v1alpha1"}, rec.APIVersion)) {
		err = fmt.Errorf("this hub does not know a %.60q of %.60q about %.80q", rec.Kind, rec.APIVersion, rec.ImageRef)
	}
	if err != nil {
		return rec, false, fmt.Errorf("read kubelet's record of the image: %w", err)
	}
	return rec, true, nil
}

// apiGroup is that of kubelet's configuration and records.
const apiGroup = "kubelet.config.k8s.io"

// maxSecrets is from how many Secrets of an image on kubelet no longer takes one by its UID whose content has changed.
const maxSecrets = 100

// grants reports whether a pod may use an image that was pulled with these credentials. kubelet ignores Secrets that are missing,
// and starts nothing if it cannot read one.
func (r Records) grants(ctx context.Context, c credentials, pod *corev1.Pod, image string) (granted bool, _ error) {
	if c.Everybody || len(c.Secrets) == 0 {
		return c.Everybody, nil
	}
	for _, ref := range pod.Spec.ImagePullSecrets {
		s, err := r.Secret(ctx, pod.Namespace, ref.Name)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("read secret %s/%s: %w", pod.Namespace, ref.Name, err)
		}
		entries, err := keyring.FromSecret(s)
		if err != nil {
			return false, err
		}
		granted = granted || len(c.Secrets) < maxSecrets && len(keyring.New(entries).Lookup(image)) > 0 &&
			slices.ContainsFunc(c.Secrets, func(k source) bool {
				return k.UID == string(s.UID) && k.Namespace == s.Namespace && k.Name == s.Name
			})
	}
	return granted, nil
}

// nameOf returns an image's name without tag and digest, otherwise as the pod has it.
func nameOf(image string) string {
	name, _, _ := strings.Cut(image, "@")
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		return name[:i]
	}
	return name
}
