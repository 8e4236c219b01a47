package imagepull

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/imagepull/keyring"
)

// problem is why a secret of a namespace, or the node's own credentials without a namespace, were
// not used.
type problem struct {
	namespace string
	err       error
}

// credentials returns the credentials of all pods that want an image, and of the node, that match
// the image, in the kubelet's order. It reads them anew for each attempt, and stores none.
func (p *Puller) credentials(ctx context.Context, image string, wanting []*job) ([]engineapi.Credential, []problem) {
	var problems []problem
	var secrets []keyring.Entries
	read := map[types.NamespacedName]bool{}
	for _, j := range wanting {
		for _, s := range j.Secrets {
			name := types.NamespacedName{Namespace: j.Namespace, Name: s}
			if read[name] {
				continue
			}
			read[name] = true
			entries, err := p.secret(ctx, name)
			if err != nil {
				problems = append(problems, problem{name.Namespace, err})
			}
			secrets = append(secrets, entries) // also with an error, some may be usable
		}
	}
	var node keyring.Entries
	if p.KubeletDir != "" {
		var err error
		if node, err = keyring.FirstOf(keyring.NodeFiles(p.KubeletDir)); err != nil {
			problems = append(problems, problem{"", err})
		}
	}
	found := keyring.Union(keyring.New(secrets...), keyring.New(node)).Lookup(image)
	return found, append(problems, duplicates(found, secrets, image)...)
}

// duplicates returns a problem for each credential that found lacks because it equals one of
// another secret. The owners of the two secrets may not know of each other.
func duplicates(found []engineapi.Credential, secrets []keyring.Entries, image string) []problem {
	var out []problem
	for _, entries := range secrets {
		for _, c := range keyring.New(entries).Lookup(image) {
			if !slices.ContainsFunc(found, func(f engineapi.Credential) bool { return f.Source == c.Source }) {
				out = append(out, problem{c.Namespace, fmt.Errorf("%s says the same as a credential that was tried", c.Source)})
			}
		}
	}
	return out
}

func (p *Puller) secret(ctx context.Context, name types.NamespacedName) (keyring.Entries, error) {
	s, err := p.Cloud.Secret(ctx, name.Namespace, name.Name)
	if err != nil {
		return nil, fmt.Errorf("secret %s cannot be read: %w", name, err)
	}
	return keyring.FromSecret(s)
}
