// Package bundle offers a node that is offline a new revision of a workload: an admin makes and signs a bundle in the cloud, and
// somebody carries it to the node as a file.
//
// # What is signed
//
// A [Bundle] names one workload by UID, one of its revisions by number and hash, the revisions from which only images differ, and, if
// its file has images, their digests. It comes from what the controller has written on the workload's pods in the cloud, so the
// apiserver has admitted every image that it names for such a pod. It is signed in the DSSE format with an ed25519 key. In its file, a
// tar that is an OCI layout as well, it is [api.UpgradeBundleFile].
//
// # Who may sign
//
// The keys stand in a ConfigMap of the cluster, each with the namespaces that it is for and the time after which it counts no more;
// see [ParseKeys]. A node reads it while the cloud is there, and has it on its disk in an outage. If there is none, or the node may not
// read it, no key counts. A key that is removed while a node is away counts there until the next contact, and for MaxKeysAge at
// most.
//
// # Time
//
// A node's clock may stand, or be set back. A [Store] goes by the later of the clock and of the latest time that it has proof of: that of
// the cloud's answer, or when a bundle was issued that it has verified. The next answer of the cloud corrects it, so that neither a clock that
// once ran ahead nor an admin's does harm for long. Of a clock that begins at the same time with each boot only the time since counts.
//
// # What it offers
//
// The [Store] shows a pod, while the cloud is away, as the controller would have marked it, to the hub itself and in GET /pods: whatever
// upgrades pods then treats it as any other. Nothing of it is sent to the cloud, which knows better when it is back. The bundle stays
// as the floor of its workload: neither an older revision nor another one of the same number is taken then. The number of
// the newest revision, which the controller writes in the policy of each pod, is such a floor as well.
package bundle

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
)

const (
	// PayloadType is the type of what is signed. A later one that is no longer understood has another number.
	PayloadType = "application/vnd.edgehub.upgrade.v1+json"
	// MaxValidity is for how long a bundle counts at most, so that one that is lost is no danger for years.
	MaxValidity = 90 * 24 * time.Hour
	// maxSignatures bounds what a caller without a key has the node do: each signature is tried with each key.
	maxSignatures = 4
)

// Bundle is what is signed: an upgrade of the pods of a workload, whose images alone differ.
type Bundle struct {
	Kind      string    `json:"kind"` // DaemonSet or StatefulSet
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	// Target is the revision, with its number, and without what is about one pod.
	Target api.Target `json:"target"`
	// Bases has, by the hash of the revision that a pod is of, what changes.
	Bases map[string][]api.ImageChange `json:"bases"`
	// Images are the digests of those in the file, by the names that Target has.
	Images map[string]digest.Digest `json:"images,omitempty"`
	// Issued and Expires bound when it counts; see MaxValidity.
	Issued  time.Time `json:"issued"`
	Expires time.Time `json:"expires"`
}

// RefusedError is why a bundle is not taken: one line for people.
type RefusedError struct{ Why string }

func (e *RefusedError) Error() string { return "the bundle is refused: " + e.Why }

func refuse(format string, args ...any) error { return &RefusedError{fmt.Sprintf(format, args...)} }

// check returns what is wrong with a bundle whoever has signed it.
func (b *Bundle) check() error {
	switch validity := b.Expires.Sub(b.Issued); {
	case b.Namespace == "" || b.Name == "" || b.UID == "" || b.Kind != "DaemonSet" && b.Kind != "StatefulSet":
		return errors.New("it names no DaemonSet or StatefulSet with namespace and UID")
	case b.Target.Revision == "" || b.Target.Number <= 0 || len(b.Target.Containers) == 0 || len(b.Bases) == 0:
		return errors.New("it names no revision with number, containers, and what it may be upgraded from")
	case b.Issued.IsZero() || validity <= 0 || validity > MaxValidity:
		return fmt.Errorf("it counts from %s until %s: it may for %v at most", b.Issued.Format(time.RFC3339), b.Expires.Format(time.RFC3339), MaxValidity)
	}
	if _, _, err := api.TargetOf(api.WithTarget(&corev1.Pod{}, b.Target, "", time.Time{})); err != nil {
		return fmt.Errorf("no pod can be marked with its revision: %w", err)
	}
	for base, changes := range b.Bases {
		for _, c := range changes {
			if !slices.Contains(b.Target.Containers, api.TargetImage{Name: c.Name, Image: c.To}) || c.From == c.To {
				return fmt.Errorf("what changes from revision %.100q is not what its revision has", base)
			}
		}
		if len(changes) == 0 {
			return fmt.Errorf("nothing changes from revision %.100q", base)
		}
	}
	for image, d := range b.Images {
		if err := d.Validate(); err != nil || !slices.ContainsFunc(b.Target.Images(), func(i api.TargetImage) bool { return i.Image == image }) {
			return fmt.Errorf("image %.200q is none of its revision's, or has no digest", image)
		}
		if _, by, named := strings.Cut(image, "@"); named && by != d.String() {
			return fmt.Errorf("image %.200q has another digest in its file", image)
		}
	}
	return nil
}

// Sign returns the envelope of a bundle.
func (b *Bundle) Sign(key ed25519.PrivateKey) ([]byte, error) {
	if err := b.check(); err != nil {
		return nil, err
	}
	payload, err := json.Marshal(b)
	if err != nil {
		return nil, err
	}
	signer, err := dsse.NewEnvelopeSigner(ed25519Key{private: key})
	if err != nil {
		return nil, err
	}
	envelope, err := signer.SignPayload(context.Background(), PayloadType, payload)
	if err != nil {
		return nil, err
	}
	out, err := json.Marshal(envelope)
	if len(out) > api.MaxUpgradeBundle {
		return nil, fmt.Errorf("the signed bundle has %d bytes, and may have %d at most", len(out), api.MaxUpgradeBundle)
	}
	return out, err
}

// Open returns the bundle in an envelope that one of the keys has signed, and that key. It does not look at the time. An error that
// is no *RefusedError means that it is no bundle at all.
func Open(envelope []byte, keys []Key) (Bundle, Key, error) {
	var e dsse.Envelope
	if len(envelope) > api.MaxUpgradeBundle || json.Unmarshal(envelope, &e) != nil || e.PayloadType == "" || len(e.Signatures) == 0 {
		return Bundle{}, Key{}, fmt.Errorf("it is no signed bundle: want an envelope in the DSSE format of %d bytes at most", api.MaxUpgradeBundle)
	}
	if e.PayloadType != PayloadType {
		return Bundle{}, Key{}, refuse("it is of type %.100q, and this hub reads %s", e.PayloadType, PayloadType)
	}
	if len(e.Signatures) > maxSignatures {
		return Bundle{}, Key{}, refuse("it has %d signatures, and may have %d", len(e.Signatures), maxSignatures)
	}
	if len(keys) == 0 {
		return Bundle{}, Key{}, refuse("this node knows no key of its cluster's: the admin names the keys in ConfigMap %s/%s, and the node reads it while the cloud is there", KeysNamespace, KeysName)
	}
	payload, key, ok := verify(&e, keys)
	if !ok {
		return Bundle{}, Key{}, refuse("none of the keys that this node knows has signed it: it was changed, or signed with a key that ConfigMap %s/%s did not have when the node read it last", KeysNamespace, KeysName)
	}
	var b Bundle
	if err := json.Unmarshal(payload, &b); err != nil {
		return Bundle{}, key, refuse("what key %s has signed cannot be read: %v", key.Name, err)
	}
	if err := b.check(); err != nil {
		return Bundle{}, key, refuse("what key %s has signed is no upgrade: %v", key.Name, err)
	}
	for _, k := range keys { // an admin may name a key twice, as for two namespaces, or until a later time
		if k.Public.Equal(key.Public) && k.MayFor(b.Namespace) && (!key.MayFor(b.Namespace) || k.NotAfter.After(key.NotAfter)) {
			key = k
		}
	}
	if !key.MayFor(b.Namespace) {
		return Bundle{}, key, refuse("key %s may not sign for namespace %s: ConfigMap %s/%s names those that it may", key.Name, b.Namespace, KeysNamespace, KeysName)
	}
	return b, key, nil
}

// verify returns what one of the keys has signed.
func verify(e *dsse.Envelope, keys []Key) (payload []byte, _ Key, ok bool) {
	for _, key := range keys {
		v, err := dsse.NewEnvelopeVerifier(ed25519Key{public: key.Public})
		if err != nil {
			continue
		}
		if _, payload, err := v.VerifyAndDecode(context.Background(), e); err == nil {
			return payload, key, true
		}
	}
	return nil, Key{}, false
}

// ed25519Key is a dsse.Signer and a dsse.Verifier.
type ed25519Key struct {
	private ed25519.PrivateKey
	public  ed25519.PublicKey
}

// Sign implements dsse.Signer.
func (k ed25519Key) Sign(_ context.Context, data []byte) ([]byte, error) {
	return ed25519.Sign(k.private, data), nil
}

// Verify implements dsse.Verifier.
func (k ed25519Key) Verify(_ context.Context, data, sig []byte) error {
	if !ed25519.Verify(k.public, data, sig) {
		return errors.New("the signature is not this key's")
	}
	return nil
}

// KeyID implements both: the envelope does not name its key, since all that count are tried.
func (k ed25519Key) KeyID() (string, error) { return "", nil }

// Public implements dsse.Verifier.
func (k ed25519Key) Public() crypto.PublicKey { return k.public }
