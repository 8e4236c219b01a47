package imagepull

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/opencontainers/go-digest"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/bundle"
	"github.com/edgehub-io/edgehub/test/cluster/images"
	"github.com/edgehub-io/edgehub/test/internal/pulltest"
	"github.com/edgehub-io/edgehub/test/internal/smalldisk"
)

// signingKey makes a key that nodes may read and that may sign for the rig's namespace, before its hub starts.
func (r *rig) signingKey() ed25519.PrivateKey {
	r.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	r.must(err)
	der, err := x509.MarshalPKIXPublicKey(public)
	r.must(err)
	text := strings.ReplaceAll(string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})), "\n", "\n  ")
	meta := metav1.ObjectMeta{Namespace: bundle.KeysNamespace, Name: bundle.KeysName}
	_, err = env.admin.CoreV1().ConfigMaps(meta.Namespace).Create(r.Context(), &corev1.ConfigMap{
		ObjectMeta: meta, Data: map[string]string{"alice": "publicKey: |\n  " + text + "\nnamespaces: [" + r.namespace + "]\nnotAfter: 2999-01-01T00:00:00Z\n"},
	}, metav1.CreateOptions{})
	r.must(err)
	_, err = env.admin.RbacV1().Roles(meta.Namespace).Create(r.Context(), &rbacv1.Role{
		ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{meta.Name}, Verbs: []string{"get"}}},
	}, metav1.CreateOptions{})
	r.must(err)
	_, err = env.admin.RbacV1().RoleBindings(meta.Namespace).Create(r.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:nodes"}},
	}, metav1.CreateOptions{})
	r.must(err)
	return private
}

// bundleFor returns what offers the pod of a DaemonSet the revision that its DaemonSet has by now, with an image in place of its own.
func (d *daemon) bundleFor(image string, digests map[string]digest.Digest) bundle.Bundle {
	d.Helper()
	change := api.ImageChange{Name: "c0", From: oldImage, To: image}
	return bundle.Bundle{
		Kind: "DaemonSet", Namespace: d.namespace, Name: d.name, UID: metav1.GetControllerOf(d.pod).UID,
		Target: api.Target{Revision: d.revision, Number: 2, Containers: []api.TargetImage{{Name: change.Name, Image: change.To}}},
		Bases:  map[string][]api.ImageChange{d.pod.Labels[appsv1.ControllerRevisionHashLabelKey]: {change}},
		Images: digests, Issued: time.Now().Add(-time.Minute), Expires: time.Now().Add(time.Hour),
	}
}

// verifies returns the code of the hub's answer about an envelope.
func (r *rig) verifies(envelope []byte) int {
	r.Helper()
	answer, err := http.Post(r.hub.API+api.UpgradeBundles+"?"+api.DryRunParam+"="+api.DryRunAll, "application/json", bytes.NewReader(envelope))
	r.must(err)
	r.must(answer.Body.Close())
	return answer.StatusCode
}

// TestImportOfASignedBundle is an upgrade of which a node hears only by a file. Nothing of one that is refused is on the node; of the
// other, a restart of the hub changes nothing. When the cloud is back, it decides.
func TestImportOfASignedBundle(t *testing.T) {
	t.Parallel()
	r := newRigIn(t, smalldisk.Mount(t, 96))
	r.spool = smalldisk.Mount(t, 32)
	key := r.signingKey()
	image, err := images.New(images.Platform("amd64"), r.layer(1, 6<<20))
	r.must(err)
	zeros, err := pulltest.Zeros(30_000, 4<<10)
	r.must(err)
	bomb, err := images.New(images.Platform("amd64"), zeros)
	r.must(err)
	digestOf := func(image v1.Image) digest.Digest {
		hash, err := image.Digest()
		r.must(err)
		return digest.Digest(hash.String())
	}
	manifest := digestOf(image)
	reference := r.registry.Reference("app", "2")
	r.must(r.registry.Down())
	r.hub.Start()
	d := r.daemonSet("web")
	d.change(reference)
	pod := r.namespace + "/" + d.pod.Name
	d.patchPod(env.controller, d.pod, map[string]any{"metadata": map[string]any{"annotations": map[string]string{api.PolicyAnnotation: api.Policy{InPlace: true, Newest: 1}.Encode()}}})

	signed := func(change func(*bundle.Bundle)) []byte {
		b := d.bundleFor(reference, map[string]digest.Digest{reference: manifest})
		change(&b)
		envelope, err := b.Sign(key)
		r.must(err)
		return envelope
	}
	same := func(*bundle.Bundle) {}
	fileOf := func(image v1.Image, envelope []byte, change func([]pulltest.File) []pulltest.File) string {
		files := pulltest.Layout(t, image, "harmless/app:1") // what the file calls it does not count
		return pulltest.Tar(t, append(change(files), pulltest.File{Name: api.UpgradeBundleFile, Text: envelope}))
	}
	file := func(envelope []byte, change func([]pulltest.File) []pulltest.File) string {
		return fileOf(image, envelope, change)
	}
	whole := func(f []pulltest.File) []pulltest.File { return f }
	r.eventually("the hub knows the key and the pod", func() bool { return r.verifies(signed(same)) == http.StatusOK })
	r.must(r.hub.Link.BlackHole())
	r.eventually("the hub is offline", func() bool { return !r.online() })

	const sandbox = "none.example.com/pause:1" // as package cluster sets it, and on a node with pods
	other, err := images.New(images.Platform("amd64"), r.layer(2, 1000))
	r.must(err)
	r.ctr("images", "import", pulltest.Tar(t, pulltest.Layout(t, other, sandbox)))
	r.ctr("images", "label", sandbox, "io.cri-containerd.image=managed", "io.cri-containerd.pinned=pinned")
	r.ctr("images", "tag", sandbox, "collected:1")
	r.ctr("images", "rm", "--sync", "collected:1") // and what ctr has left
	before := r.content()
	flip := func(f []pulltest.File) []pulltest.File {
		f[len(f)-1].Text = slices.Clone(f[len(f)-1].Text)
		f[len(f)-1].Text[1000] ^= 1
		return f
	}
	zipped := func(path string) string {
		r.must(exec.CommandContext(t.Context(), "gzip", path).Run())
		return path + ".gz"
	}
	ofBomb := signed(func(b *bundle.Bundle) { b.Images[reference] = digestOf(bomb) })
	for what, tt := range map[string]struct {
		path string
		code int
		says string
	}{
		"what was signed is another": {file(bytes.Replace(signed(same), []byte(`"payload":"e`), []byte(`"payload":"f`), 1), whole), 4, "none of the keys that this node knows has signed it"},
		"a byte of a layer":          {file(signed(same), flip), 1, "somebody has tampered with it"},
		"a layer is missing":         {file(signed(same), func(f []pulltest.File) []pulltest.File { return f[:len(f)-1] }), 1, "the file lacks sha256:"},
		"the image is missing":       {file(signed(same), func(f []pulltest.File) []pulltest.File { return slices.Delete(f, 2, 3) }), 1, "the file lacks image " + reference},
		"the image of sandboxes": {
			file(signed(func(b *bundle.Bundle) { *b = d.bundleFor(sandbox, map[string]digest.Digest{sandbox: manifest}) }), whole), 1, "the sandboxes of all pods run",
		},
		// Both are a hundred times as large on a disk.
		"a layer of which more comes than fits": {fileOf(bomb, ofBomb, whole), 1, "leaves too little room"},
		"a file of which more comes than fits": {
			zipped(file(signed(same), func(f []pulltest.File) []pulltest.File {
				return append(f, pulltest.File{Name: "zeros", Text: make([]byte, 64<<20)})
			})), 1, "too little room",
		},
	} {
		if text, code := r.importFile(nil, "--min-free=20", tt.path); code != tt.code || !strings.Contains(text, tt.says) || !strings.Contains(text, "nothing of "+tt.path+" was imported") {
			t.Errorf("%s: exit code %d: %s", what, code, text)
		}
		if after := r.content(); after != before {
			t.Errorf("%s: before it was\n%s\nand after it\n%s", what, before, after)
		}
		if taken := r.bundles(); len(taken) > 0 {
			t.Errorf("%s: the hub has taken %v", what, taken)
		}
	}

	path := file(signed(same), whole)
	text, code := r.importFile(nil, path)
	if code != 0 || !strings.Contains(text, "Bundle of DaemonSet "+r.namespace+"/web, revision 2 ("+d.revision+"), signed with key alice, counts until ") ||
		!strings.Contains(text, ": offered to pod "+pod+"\n"+reference+": on the node, 6.0 MiB, "+manifest.String()) || !strings.HasSuffix(text, "To upgrade: edgehubctl upgrade "+pod+"\n") {
		t.Errorf("exit code %d: %s", code, text)
	}
	r.hub.Kill()
	r.hub.Start()
	r.eventually("the hub is offline again", func() bool { return !r.online() })
	r.awaitReady(d.pod.Name)
	r.awaitImage(reference)
	if taken := r.bundles(); len(taken) != 1 || taken[0].Problem != "" {
		t.Errorf("after a restart the hub offers %v", taken)
	}

	r.must(r.hub.Link.Up())
	r.eventually("the hub is online", r.online)
	text, code = r.importFile(nil, path)
	if code != 0 || !strings.Contains(text, ": offered to no pod now: the cloud is there, and decides\nPod "+pod+" does not need revision "+d.revision+" as of now") {
		t.Errorf("online, exit code %d: %s", code, text)
	}
	target := d.bundleFor(reference, nil).Target
	d.patchPod(env.controller, d.pod, map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{api.TargetAnnotation: target.Encode()}},
		"status":   map[string]any{"conditions": []corev1.PodCondition{need(d.revision)}},
	})
	r.awaitMark(d.pod.Name)
	text, code = r.importFile(nil, path)
	if code != 0 || !strings.Contains(text, ": offered to no pod now: the cloud is there, and decides\n") || !strings.HasSuffix(text, "To upgrade: edgehubctl upgrade "+pod+"\n") {
		t.Errorf("online and marked, exit code %d: %s", code, text)
	}
}

// content is all that containerd has, and what holds it.
func (r *rig) content() string {
	r.Helper()
	var all []string
	for _, what := range [][]string{{"images", "ls", "-q"}, {"content", "ls", "-q"}, {"content", "active"}, {"leases", "ls", "-q"}, {"snapshots", "ls"}} {
		lines := strings.Split(r.ctr(what...), "\n")
		slices.Sort(lines)
		all = append(all, lines...)
	}
	return strings.Join(all, "\n")
}

// bundles are those that the hub has taken.
func (r *rig) bundles() []api.UpgradeBundle {
	r.Helper()
	var list api.UpgradeBundleList
	r.read(api.UpgradeBundles, &list)
	return list.Items
}
