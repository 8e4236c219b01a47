package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/cmd/kubectl-edgehub/imagetar"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/controller/workload"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/bundle"
)

// field is what a bundle is made of: a DaemonSet web whose pods a and b, of revision old, and c, of revision older, wait for an upgrade, and
// the cluster's keys. The admin has alice's.
type field struct {
	call
	ds        *appsv1.DaemonSet
	pods      []*corev1.Pod
	revisions []*appsv1.ControllerRevision // older, old, and new
	keys      map[string]string            // nil: there is no ConfigMap
	nodes     map[string]string            // architectures, by name

	forbidden string // resource
	private   ed25519.PrivateKey
}

func newField(t *testing.T) *field {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	ds := managed("web", "OTA")
	ds.Namespace, ds.UID, ds.Spec.Selector = "shop", "web-uid", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	ds.Annotations[api.OfflineUpgradeAnnotation] = api.OfflineUpgradeInPlace
	f := &field{ds: &ds, private: private, nodes: map[string]string{"node-a": "arm64", "node-b": "arm64", "node-c": "amd64"}}
	for _, name := range []string{"a", "b", "c"} {
		base := map[string]string{"a": "old", "b": "old", "c": "older"}[name]
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-" + name, Labels: map[string]string{"app": "web", appsv1.ControllerRevisionHashLabelKey: base},
			OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Name: "web", UID: ds.UID, Controller: new(true)}},
		}}
		pod.Spec.NodeName = "node-" + name
		pod.Spec.Containers = []corev1.Container{{Name: "web", Image: "registry.example/web:" + base}, {Name: "log", Image: "registry.example/log:1"}}
		f.pods = append(f.pods, pod)
		f.mark(len(f.pods)-1, func(target *api.Target) {
			target.Prepull, target.Blocked, target.Asks, target.Answered, target.Unknown = &metav1.Time{Time: time.Unix(1e9, 0)}, name+" has no room", true, name, "a webhook is down"
			target.InPlace = []api.ImageChange{{Name: "web", From: "registry.example/web:" + base, To: "registry.example/web:2"}}
		})
	}
	for i, hash := range []string{"older", "old", "new"} {
		f.revise(hash, int64(i)+5, strings.Replace("registry.example/web:"+hash, "new", "2", 1))
	}
	f.keys = map[string]string{"alice": keyEntry(t, public, "[shop, bank]", "2100-01-01T00:00:00Z")}
	f.output, f.signing = filepath.Join(t.TempDir(), "web.bundle"), bundleFlags{key: "keys/alice@edge.pem", validFor: time.Hour}
	return f
}

// revise adds a revision.
func (f *field) revise(hash string, number int64, image string) {
	spec := corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "init", Image: "registry.example/web:2"}},
		Containers:     []corev1.Container{{Name: "web", Image: image}, {Name: "log", Image: "registry.example/log:1"}},
	}
	text, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": spec}}})
	if err != nil {
		panic("encode template: " + err.Error())
	}
	r := &appsv1.ControllerRevision{Revision: number, Data: runtime.RawExtension{Raw: text}}
	r.Namespace, r.Name, r.OwnerReferences = "shop", "web-"+hash, f.pods[0].OwnerReferences
	r.Labels = map[string]string{"app": "web", appsv1.ControllerRevisionHashLabelKey: hash}
	f.revisions = append(f.revisions, r)
}

// mark changes what the controller has written on a pod.
func (f *field) mark(pod int, change func(*api.Target)) {
	target, ok, _ := api.TargetOf(f.pods[pod])
	if !ok {
		target = api.Target{
			Revision: "new", Number: 7, MinReadySeconds: 5, ImagePullSecrets: []string{"login"}, Requests: corev1.ResourceList{"cpu": resource.MustParse("100m")},
			InitContainers: []api.TargetImage{{Name: "init", Image: "registry.example/web:2"}},
			Containers:     []api.TargetImage{{Name: "web", Image: "registry.example/web:2"}, {Name: "log", Image: "registry.example/log:1"}},
		}
	}
	change(&target)
	f.pods[pod] = api.WithTarget(f.pods[pod], target, "UpgradeAvailable", time.Now())
}

func keyEntry(t *testing.T, public ed25519.PublicKey, namespaces, notAfter string) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	text := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	return "publicKey: |\n  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") + "\nnamespaces: " + namespaces + "\nnotAfter: " + notAfter + "\n"
}

// run writes the bundle, and returns what is printed.
func (f *field) run(ctx context.Context, platforms ...imagetar.Platform) (code int, out, errs string) {
	objects := []runtime.Object{f.ds}
	for _, pod := range f.pods {
		objects = append(objects, pod)
	}
	for _, r := range f.revisions {
		objects = append(objects, r)
	}
	foreign := f.revisions[0].DeepCopy() // of a workload of that name that was deleted
	foreign.Name, foreign.OwnerReferences = "web-z", nil
	foreign.Labels[appsv1.ControllerRevisionHashLabelKey] = "old"
	other := f.pods[0].DeepCopy() // of somebody else
	other.Name, other.OwnerReferences = "other", nil
	if f.keys != nil {
		objects = append(objects, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: bundle.KeysNamespace, Name: bundle.KeysName}, Data: f.keys})
	}
	for name, architecture := range f.nodes {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Status.NodeInfo.OperatingSystem, n.Status.NodeInfo.Architecture = "linux", architecture
		objects = append(objects, n)
	}
	client := fake.NewClientset(append(objects, other, foreign)...)
	if f.forbidden != "" {
		client.PrependReactor("*", f.forbidden, func(a clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(a.GetResource().GroupResource(), "x", errors.New("no"))
		})
	}
	to := &cluster{client: client, namespace: "shop", clock: &serverClock{}}
	to.clock.ahead.Store(int64(24 * time.Hour))
	var stdout, stderr bytes.Buffer
	f.out, f.err = &stdout, &stderr
	code = cli.Finish(&stderr, "error", f.bundleOf(ctx, to, named{workload.DaemonSet, "web"}, f.private, platforms))
	return code, stdout.String(), stderr.String()
}

// written returns what is in a file, as a node reads it.
func (f *field) written(t *testing.T, file []byte) bundle.Bundle {
	t.Helper()
	from := tar.NewReader(bytes.NewReader(file))
	header, err := from.Next()
	if err != nil || header.Name != api.UpgradeBundleFile {
		t.Fatalf("the file begins with %v, %v", header, err)
	}
	envelope, err := io.ReadAll(from)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := bundle.ParseKeys(f.keys)
	if err != nil {
		t.Fatal(err)
	}
	b, _, err := bundle.Open(envelope, keys)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// payload is what is signed of a new field, issued at a time.
func payload(issued time.Time) string {
	return `{"kind":"DaemonSet","namespace":"shop","name":"web","uid":"web-uid",` +
		`"target":{"revision":"new","number":7,"containers":[{"name":"web","image":"registry.example/web:2"},{"name":"log","image":"registry.example/log:1"}],` +
		`"initContainers":[{"name":"init","image":"registry.example/web:2"}],"imagePullSecrets":["login"],"requests":{"cpu":"100m"},"minReadySeconds":5},` +
		`"bases":{"old":[{"name":"web","from":"registry.example/web:old","to":"registry.example/web:2"}],"older":[{"name":"web","from":"registry.example/web:older","to":"registry.example/web:2"}]},` +
		`"issued":"` + issued.Format(time.RFC3339) + `","expires":"` + issued.Add(time.Hour).Format(time.RFC3339) + `"}`
}

func TestBundle(t *testing.T) {
	f := newField(t)
	if err := os.WriteFile(f.output, []byte("what was there before"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := f.run(t.Context())
	if code != cli.Done || errs != "" {
		t.Fatalf("got exit code %d and %s", code, errs)
	}
	file, err := os.ReadFile(f.output)
	if err != nil {
		t.Fatal(err)
	}
	got := f.written(t, file)
	if ahead := time.Until(got.Issued); ahead < 24*time.Hour-time.Minute || ahead > 24*time.Hour {
		t.Errorf("it is issued at %v, want the apiserver's time", got.Issued)
	}
	if signed, err := json.Marshal(got); err != nil || string(signed) != payload(got.Issued.UTC()) {
		t.Errorf("got %v,\n%s\nwant\n%s", err, signed, payload(got.Issued.UTC()))
	}
	wantOut := f.output + ": " + cli.Size(int64(len(file))) + `
workload:    daemonset shop/web
revision:    new, number 7
for pods of: old, older
images:      none in the file: a node needs to have them already, or --images puts them in
valid until: ` + got.Expires.Format(time.DateTime) + ` UTC
key:         alice
On the node: sudo edgehubctl import web.bundle
`
	if out != wantOut {
		t.Errorf("got\n%s\nwant\n%s", out, wantOut)
	}
	info, err := os.Stat(f.output)
	if err != nil || info.Mode() != 0o644 {
		t.Errorf("its mode is %v, %v", info.Mode(), err)
	}
}

func TestBundleToStdout(t *testing.T) {
	f := newField(t)
	f.output = "-"
	_, out, errs := f.run(t.Context())
	if got := f.written(t, []byte(out)); got.UID != "web-uid" || !strings.Contains(errs, "\nOn the node: sudo edgehubctl import FILE\n") {
		t.Errorf("got %v, and on stderr %s", got, errs)
	}
}

// full is a disk that takes some bytes.
type full struct{ left int }

func (f *full) Write(p []byte) (int, error) {
	if f.left -= len(p); f.left < 0 {
		return 0, syscall.ENOSPC
	}
	return len(p), nil
}

func TestADiskThatIsFull(t *testing.T) {
	for left := range 7 {
		out := &full{512 * left} // it takes seven, of which the last two only end it
		write := func(to io.Writer) error {
			return imagetar.Write(t.Context(), io.MultiWriter(to, out), imagetar.File{Name: "x"}, nil, nil)
		}
		path := filepath.Join(t.TempDir(), "web.bundle")
		if _, err := writeFile(path, nil, write); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("after %d blocks: %v", left, err)
		}
		if left, err := os.ReadDir(filepath.Dir(path)); len(left) > 0 || err != nil {
			t.Errorf("it has left %v, %v", left, err)
		}
		if _, err := writeFile("-", out, write); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("to stdout: %v", err)
		}
	}
}

func TestTheNameOfAKey(t *testing.T) {
	for path, want := range map[string]string{"alice.pem": "alice", "keys.d/alice": "alice", "alice@edge.pem": "alice-edge", "ä.b.pem": "-.b", ".pem": "key", "..pem": "key"} {
		if got := keyName(path); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

func TestBundleWithWarnings(t *testing.T) {
	tests := map[string]struct {
		change func(*field)
		says   string
		bases  int
	}{
		"another base is not in place":      {func(f *field) { f.refuse(2, "the volumes differ") }, "warning: pods of revision older cannot be upgraded with it: the volumes differ (1 pod, such as shop/web-c)\n", 1},
		"one pod of a base is not in place": {func(f *field) { f.refuse(1, "the pod has ended") }, "", 2},
		"the keys may not be read":          {func(f *field) { f.forbidden = "configmaps" }, "warning: it is not known whether nodes take this key: configmaps \"x\" is forbidden: no\n", 2},
		"a pod that ends":                   {func(f *field) { f.pods[2].Status.Phase = corev1.PodFailed }, "warning: pods of revision older cannot be upgraded with it: the pod has ended (1 pod, such as shop/web-c)\n", 1},
		"an image that admission adds": {func(f *field) {
			for i := range f.pods {
				f.mark(i, func(target *api.Target) {
					target.Containers = append(target.Containers, api.TargetImage{Name: "proxy", Image: "mesh.example/proxy"})
				})
			}
		}, "warning: it names image mesh.example/proxy of proxy, too, which is not in the pod template: admission adds it, as far as the pods are marked\n", 2},
		"a pod is up to date":        {func(f *field) { f.pods[2].Annotations, f.pods[2].Status.Conditions = nil, nil }, "", 1},
		"a report of the controller": {func(f *field) { say(f.ds, rollout.ReasonUpdating) }, "", 2},
		"every namespace":            {func(f *field) { f.keys["alice"] = strings.Replace(f.keys["alice"], "[shop, bank]", `["*"]`, 1) }, "", 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := newField(t)
			tt.change(f)
			code, _, errs := f.run(t.Context())
			file, err := os.ReadFile(f.output)
			if code != cli.Done || errs != tt.says || err != nil {
				t.Fatalf("got exit code %d, %v and %q, want %q", code, err, errs, tt.says)
			}
			if got := f.written(t, file); len(got.Bases) != tt.bases {
				t.Errorf("got the bases %v", got.Bases)
			}
		})
	}
}

// refuse has the controller say why a pod may not be upgraded in place.
func (f *field) refuse(pod int, why string) {
	f.mark(pod, func(target *api.Target) { target.InPlace, target.NotInPlace = nil, why })
}

func TestNoBundle(t *testing.T) {
	annotate := func(key, value string) func(*field) {
		return func(f *field) { f.ds.Annotations[key] = value }
	}
	each := func(change func(f *field, pod int)) func(*field) {
		return func(f *field) {
			for i := range f.pods {
				change(f, i)
			}
		}
	}
	key := func(replacing, by string) func(*field) {
		return func(f *field) { f.keys["alice"] = strings.Replace(f.keys["alice"], replacing, by, 1) }
	}
	soon := time.Now().Add(24*time.Hour + 30*time.Minute + 30*time.Second).UTC().Format(time.RFC3339) // 30 minutes on, by the apiserver's clock
	inAYear := time.Now().Add(24*time.Hour).UTC().AddDate(1, 0, 0).Format(time.DateOnly) + "T00:00:00Z\n"
	tests := map[string]struct {
		change func(*field)
		says   []string
	}{
		"no annotation, whatever else is wrong": {func(f *field) {
			delete(f.ds.Annotations, api.OfflineUpgradeAnnotation)
			f.pods, f.keys = f.pods[:1], nil
		}, []string{"error: daemonset shop/web does not permit upgrades without the cloud: it needs the annotation apps.openyurt.io/offline-upgrade: InPlace"}},
		"the annotation's default":    {annotate(api.OfflineUpgradeAnnotation, "Queue"), []string{"does not permit upgrades without the cloud"}},
		"an annotation that is wrong": {annotate(api.OfflineUpgradeAnnotation, "x"), []string{"error: daemonset shop/web: annotation apps.openyurt.io/offline-upgrade is \"x\""}},
		"another strategy":            {annotate(api.StrategyAnnotation, "AdvancedRollingUpdate"), []string{"does not have the strategy OTA"}},
		"a strategy that is none":     {annotate(api.StrategyAnnotation, "x"), []string{`error: daemonset shop/web: annotation apps.openyurt.io/update-strategy is "x"`}},
		"no pods wait":                {each(func(f *field, pod int) { f.pods[pod].Status.Conditions = nil }), []string{"error: no pod of daemonset shop/web waits for an upgrade"}},
		"no pods can be upgraded": {func(f *field) { f.refuse(0, "x"); f.refuse(1, "the volumes differ"); f.refuse(2, "the volumes differ") },
			[]string{"error: no pod of daemonset shop/web can be upgraded without the cloud: the volumes differ (2 pods, such as shop/web-b)"}},
		"the controller has yet to ask":          {each(func(f *field, pod int) { f.refuse(pod, "") }), []string{"the controller has yet to ask the apiserver, try again in some seconds (3 pods, such as shop/web-a)"}},
		"the controller has yet to see a change": {func(f *field) { say(f.ds, rollout.ReasonComplete); f.ds.Generation++ }, []string{"yet to see the last change of daemonset shop/web: try again"}},
		"another revision of one pod": {func(f *field) { f.mark(1, func(target *api.Target) { target.Revision = "newer" }) },
			[]string{"error: pod shop/web-b is marked for revision newer (number 7), and the newest of daemonset shop/web is new (number 7): try again in some seconds; if that stays, somebody else than the controller has written its annotation apps.openyurt.io/upgrade-target, which deploy/admission prevents"}},
		"another number of all pods":                {each(func(f *field, pod int) { f.mark(pod, func(target *api.Target) { target.Number = 1e9 }) }), []string{"marked for revision new (number 1000000000), and the newest of daemonset shop/web is new (number 7)"}},
		"a number that another revision has by now": {func(f *field) { f.revise("newest", 8, "registry.example/web:3") }, []string{"marked for revision new (number 7), and the newest of daemonset shop/web is newest (number 8)"}},
		"a target of one pod that differs":          {func(f *field) { f.mark(1, func(target *api.Target) { target.MinReadySeconds++ }) }, []string{"error: the controller is marking the pods of daemonset shop/web anew, shop/web-b otherwise than shop/web-a: try again"}},
		"images that no revision has": {each(func(f *field, pod int) {
			f.mark(pod, func(target *api.Target) {
				target.Containers[0].Image, target.InPlace[0].To = "evil.example/x", "evil.example/x"
			})
		}), []string{"error: pod shop/web-a is marked with an upgrade in place that the revisions of daemonset shop/web do not permit (an admission policy gives new pods another image for container web than the pod template): try again in some seconds; if that stays"}},
		"images of another container": {each(func(f *field, pod int) {
			f.mark(pod, func(target *api.Target) {
				target.InPlace = append(target.InPlace, api.ImageChange{Name: "log", From: "registry.example/log:1", To: "evil.example/x"})
				target.Containers[1].Image = "evil.example/x"
			})
		}), []string{"do not permit (these are not the images that differ)"}},
		"a base that no revision is": {func(f *field) { f.revisions = f.revisions[1:] }, []string{"error: pod shop/web-c is marked with", "(the pod's own revision is not in the history)"}},
		"a base with another template": {func(f *field) {
			r := f.revisions[1]
			r.Data.Raw = bytes.Replace(r.Data.Raw, []byte(`"template":{"spec":{"`), []byte(`"template":{"spec":{"hostPID":true,"`), 1)
		}, []string{"(spec.hostPID differs between the two revisions)"}},
		"a pod that somebody has changed": {func(f *field) { f.pods[0].Spec.Containers[0].Image = "evil.example/x" }, []string{"(container web has another image than its revision"}},
		"no revision of its own": {func(f *field) {
			for _, r := range f.revisions {
				r.OwnerReferences = nil
			}
		}, []string{"error: there is no revision of the last change of daemonset shop/web yet: try again in some seconds"}},
		"revisions that may not be listed":     {func(f *field) { f.forbidden = "controllerrevisions" }, []string{"error: controllerrevisions.apps \"x\" is forbidden"}},
		"no number":                            {each(func(f *field, pod int) { f.mark(pod, func(target *api.Target) { target.Number = 0 }) }), []string{"shop/web-a without the number of its revision: it is older than this plugin, upgrade it"}},
		"changes from another image":           {func(f *field) { f.mark(1, func(target *api.Target) { target.InPlace[0].From = "x" }) }, []string{"error: pod shop/web-b is marked with", "(these are not the images that differ)"}},
		"changes that are not in the revision": {each(func(f *field, pod int) { f.mark(pod, func(target *api.Target) { target.InPlace[0].To = "x" }) }), []string{"(these are not the images that differ)"}},
		"no keys": {func(f *field) { f.keys = nil },
			[]string{"kubectl apply -f - <<'EOF'\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  namespace: kube-system\n  name: edgehub-bundle-keys\ndata:\n  alice-edge: |\n    publicKey: |\n      -----BEGIN PUBLIC KEY-----\n", "    namespaces: [\"shop\"]\n    notAfter: " + inAYear + "EOF\n", "error: there is no ConfigMap kube-system/edgehub-bundle-keys"}},
		"another key": {func(f *field) { _, f.private, _ = ed25519.GenerateKey(nil) },
			[]string{"  alice-edge: |\n    publicKey: |\n", "error: ConfigMap kube-system/edgehub-bundle-keys does not have this key: add it"}},
		"a key that cannot be read":  {key("BEGIN", "BEGUN"), []string{"does not have this key", "key alice of ConfigMap kube-system/edgehub-bundle-keys does not count: publicKey is not PEM"}},
		"a key of another namespace": {key("[shop, bank]", `[bank]`), []string{"  alice: |\n", "    namespaces: [\"bank\",\"shop\"]\n    notAfter: 2100-01-01T00:00:00Z\n", "error: key alice may not sign for namespace shop: change it"}},
		"a key that does not count":  {key("2100", "2000"), []string{"    namespaces: [\"shop\",\"bank\"]\n    notAfter: " + inAYear, "error: key alice counted until 2000-01-01T00:00:00Z: sign with another one"}},
		"a key that ends too soon":   {key("2100-01-01T00:00:00Z", soon), []string{"error: key alice counts until " + soon + " only, before the bundle expires: give --valid-for=30m0s at most, or the key a later notAfter"}},
		"keys that cannot be had":    {func(f *field) { f.ds.Name = "log" }, []string{`error: daemonsets.apps "web" not found`}},
		"a folder that is not there": {func(f *field) { f.output = filepath.Join(f.output, "x") }, []string{"error: open "}},
		"nodes that may not be read": {func(f *field) { f.signing.images, f.forbidden = true, "nodes" }, []string{"read the platform of node node-a, which --platform would say: nodes \"x\" is forbidden"}},
		"nodes that say no platform": {func(f *field) { f.signing.images, f.nodes = true, map[string]string{"node-a": ""} }, []string{"no node of the pods says which platform it is: say it by --platform"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := newField(t)
			folder := filepath.Dir(f.output)
			tt.change(f)
			code, out, errs := f.run(t.Context())
			for _, says := range tt.says {
				if !strings.Contains(errs, says) {
					t.Errorf("got\n%s\nwant it to say\n%s", errs, says)
				}
			}
			if left, err := os.ReadDir(folder); code != cli.Failed || out != "" || len(left) > 0 || err != nil {
				t.Errorf("got exit code %d and %q, and it has left %v, %v", code, out, left, err)
			}
		})
	}
}

// TestBundleOnTheCommandLine asks a server as kubectl does.
func TestBundleOnTheCommandLine(t *testing.T) {
	f := newField(t)
	der, err := x509.MarshalPKCS8PrivateKey(f.private)
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(t.TempDir(), "alice.pem")
	if err := os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	revisions := appsv1.ControllerRevisionList{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "ControllerRevisionList"}}
	for _, r := range f.revisions {
		revisions.Items = append(revisions.Items, *r)
	}
	pods := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	for _, pod := range f.pods {
		pods.Items = append(pods.Items, *pod)
	}
	f.ds.TypeMeta = metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"}
	answers := map[string]any{
		"/apis/apps/v1/namespaces/shop/daemonsets/web":                  f.ds,
		"/apis/apps/v1/namespaces/shop/controllerrevisions":             revisions,
		"/api/v1/namespaces/shop/pods":                                  pods,
		"/api/v1/namespaces/kube-system/configmaps/edgehub-bundle-keys": corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, Data: f.keys},
	}
	then := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Date", then.Format(http.TimeFormat))
		_ = json.NewEncoder(w).Encode(answers[r.URL.Path])
	}))
	t.Cleanup(server.Close)
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, tt := range []struct {
		code int
		errs string
	}{{cli.Done, ""}, {cli.Failed, "error: interrupted: " + f.output + " was not written\n"}} {
		var out, errs bytes.Buffer
		code := run(ctx, "kubectl-edgehub", []string{"bundle", "ds/web", "-n", "shop", "--server", server.URL, "--key", key, "--valid-for=1h", "-o", f.output}, &out, &errs)
		if code != tt.code || errs.String() != tt.errs {
			t.Errorf("got exit code %d and %q, want %d and %q", code, errs.String(), tt.code, tt.errs)
		}
		cancel()
	}
	file, err := os.ReadFile(f.output)
	if err != nil {
		t.Fatal(err)
	}
	if got := f.written(t, file); got.Issued.Sub(then).Abs() > 2*time.Second || got.Expires.Sub(got.Issued) != time.Hour || got.Target.Number != 7 {
		t.Errorf("got %+v", got)
	}
}

// TestMarksOfAStatefulSet are by the names of its ControllerRevisions, and its status names the newest, whatever number another has.
func TestMarksOfAStatefulSet(t *testing.T) {
	f := newField(t)
	sts := &appsv1.StatefulSet{ObjectMeta: f.ds.ObjectMeta}
	sts.Status.UpdateRevision = "web-new"
	f.revise("left", 9, "registry.example/web:left")
	for _, r := range f.revisions {
		r.OwnerReferences[0].Kind = "StatefulSet"
	}
	for i := range f.pods {
		f.pods[i].Labels[appsv1.ControllerRevisionHashLabelKey] = "web-" + revisionOf(f.pods[i])
		f.mark(i, func(target *api.Target) { target.Revision = "web-new" })
	}
	b, warnings, err := readMarks(sts, f.pods, f.revisions)
	if err != nil || len(warnings) > 0 || b.Kind != "StatefulSet" || b.Target.Revision != "web-new" || len(b.Bases["web-old"]) != 1 || len(b.Bases["web-older"]) != 1 {
		t.Errorf("got %+v, %q, %v", b, warnings, err)
	}
	sts.Status.UpdateRevision = "web-left"
	if _, _, err := readMarks(sts, f.pods, f.revisions); err == nil || !strings.Contains(err.Error(), "the newest of statefulset shop/web is web-left (number 9)") {
		t.Errorf("got %v", err)
	}
}
