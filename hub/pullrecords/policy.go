package pullrecords

import (
	"fmt"
	"slices"
	"strings"

	"github.com/edgehub-io/edgehub/hub/kubeletconf"
)

// configuration is the part of a KubeletConfiguration that decides about images that no record grants.
type configuration struct {
	APIVersion string   `json:"apiVersion"`
	Policy     *string  `json:"imagePullCredentialsVerificationPolicy"` // null in a later file takes back an earlier one
	Allowlist  []string `json:"preloadedImagesVerificationAllowlist"`
}

// asksBy returns why kubelet's configuration has it ask the registry for an image that no record grants, or "". known is what
// kubelet knows of the image, "" if nothing.
func (r Records) asksBy(image, known string) (why string, _ error) {
	var c configuration
	if err := kubeletconf.ReadRunning(r.Proc, r.RootDir, &c); err != nil {
		return "", err
	}
	if c.APIVersion != "" && c.APIVersion != apiGroup+"/v1beta1" {
		return "", fmt.Errorf("kubelet's configuration has the version %.60q, which this hub does not know", c.APIVersion)
	}
	policy := "NeverVerifyPreloadedImages"
	if c.Policy != nil && *c.Policy != "" {
		policy = *c.Policy
	}
	switch policy {
	case "NeverVerify":
		return "", nil
	case "NeverVerifyPreloadedImages":
		return known, nil
	case "AlwaysVerify":
	case "NeverVerifyAllowlistedImages":
		if c.allows(image) {
			return "", nil
		}
	default:
		return "", fmt.Errorf("kubelet's imagePullCredentialsVerificationPolicy is %.60q, which this hub does not know", policy)
	}
	return "its imagePullCredentialsVerificationPolicy is " + policy, nil
}

// allows reports whether kubelets of all versions find an image on the allowlist: up to 1.35, they compare entries without *
// with the name and the tag.
func (c *configuration) allows(image string) bool {
	return slices.ContainsFunc(c.Allowlist, func(entry string) bool {
		prefix, ok := strings.CutSuffix(entry, "*")
		return entry == image || ok && strings.HasPrefix(image, prefix)
	})
}
