package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/cmd/edgehubctl/hubclient"
	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/imagepull/engine"
	"github.com/edgehub-io/edgehub/imagepull/engine/archive"
	"github.com/edgehub-io/edgehub/ota"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/bundle"
	"github.com/edgehub-io/edgehub/ota/page"
)

const (
	verifyOf    = "/openyurt.io/v1/upgradebundles?dryRun=All"
	takeOf      = "/openyurt.io/v1/upgradebundles"
	anEnvelope  = `{"payloadType":"x"}`
	offlineText = "Bundle of DaemonSet shop/web, revision 7 (7c9b), signed with key alice, counts until "
)

// aDigest is under which files have a manifest; containerd would find out that it is not its digest.
const aDigest = "sha256:0000000000000000000000000000000000000000000000000000000000000001"

const aManifest = "blobs/sha256/0000000000000000000000000000000000000000000000000000000000000001={}"

// signedFile writes a signed bundle with the blobs of images, whatever its list of images calls them.
func signedFile(t *testing.T, blobs ...string) string {
	t.Helper()
	return tarOf(t, append([]string{`index.json={"manifests":[]}`, api.UpgradeBundleFile + "=" + anEnvelope}, blobs...)...)
}

// aTaken is a bundle that the hub offers to pod shop/web-1.
func aTaken(change ...func(*api.UpgradeBundle)) api.UpgradeBundle {
	b := api.UpgradeBundle{
		Kind: "DaemonSet", Namespace: "shop", Name: "web", Revision: newRevision, Number: 7, Key: "alice", Expires: start,
		Containers: []api.TargetImage{{Name: "a", Image: "app:2"}, {Name: "b", Image: "side:1"}}, Pods: []string{"shop/web-1"},
	}
	for _, c := range change {
		c(&b)
	}
	return b
}

func decidedByTheCloud(b *api.UpgradeBundle) { b.Problem = "the cloud is there, and decides" }

func withImages(images map[string]string) func(*api.UpgradeBundle) {
	return func(b *api.UpgradeBundle) { b.Images = images }
}

// before and marked are the pod without the cloud's mark or the bundle's, and with it.
var (
	before = pod("shop", "web-1", oldRevision, running("a=app:1", "b=side:1"))
	marked = pod("shop", "web-1", oldRevision, running("a=app:1", "b=side:1"), targetOf("a=app:2", "b=side:1"), needs(corev1.ConditionTrue, newRevision))
)

// hugeFile writes files to a tar, and the header of another one that is said to have an exabyte.
func hugeFile(t *testing.T, files ...string) string {
	t.Helper()
	path := tarOf(t, files...)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out := bytes.NewBuffer(text[:len(text)-1024]) // without the two blocks that end it
	err = tar.NewWriter(out).WriteHeader(&tar.Header{Name: strings.TrimSuffix(aManifest, "={}"), Mode: 0o644, Size: 1 << 60})
	if err := errors.Join(err, os.WriteFile(path, out.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSignedBundlesThatAreRefused(t *testing.T) {
	refused := answersWith(http.StatusForbidden, "the bundle is refused: none of the keys that this node knows has signed it")
	names := func(digest string) http.HandlerFunc {
		return sends(aTaken(withImages(map[string]string{"app:2": digest})))
	}
	another := strings.TrimSuffix(aDigest, "1") + "2"
	const signed = api.UpgradeBundleFile + "=" + anEnvelope
	const index = `index.json={"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"` + aDigest + `","size":2,"annotations":{"org.opencontainers.image.ref.name":"app:2"}}]}`
	many := []string{index, signed}
	for i := range 20_000 {
		many = append(many, fmt.Sprintf("blobs/sha256/%064x=", i))
	}
	tests := map[string]struct {
		file   string
		verify http.HandlerFunc
		code   int
		says   string
	}{
		"by the hub":                          {signedFile(t), refused, cli.NotNow, "was imported: the bundle is refused: none of the keys that this node knows has signed it\n"},
		"by the hub, before its images count": {signedFile(t, aManifest), refused, cli.NotNow, "was imported: the bundle is refused: "},
		"an image is missing":                 {signedFile(t), names(aDigest), cli.Failed, "was imported: the file lacks image docker.io/library/app:2 with digest " + aDigest},
		"an image has its name only":          {tarOf(t, index, signed), names(another), cli.Failed, "the file lacks image docker.io/library/app:2 with digest " + another},
		"an image whose name has another digest": {
			signedFile(t, aManifest, strings.Replace(aManifest, "1=", "2=", 1)), sends(aTaken(withImages(map[string]string{"app@" + another: aDigest}))), cli.Failed,
			"the file lacks image docker.io/library/app@" + another + " with digest " + aDigest,
		},
		"a name that is none":                              {signedFile(t, aManifest), sends(aTaken(withImages(map[string]string{"App": aDigest}))), cli.Failed, "this is not the name of an image"},
		"by the hub, behind ./":                            {tarOf(t, index, "./"+signed, aManifest), refused, cli.NotNow, "was imported: the bundle is refused: "},
		"a link to what is signed":                         {tarOf(t, index, strings.Replace(signed, api.UpgradeBundleFile, "x", 1), api.UpgradeBundleFile+"=-> x"), names(aDigest), cli.Failed, "was imported: its edgehub-bundle.json is a link: somebody has tampered with it"},
		"a link out of the file instead of what is signed": {tarOf(t, index, api.UpgradeBundleFile+"=-> ../../etc/passwd"), names(aDigest), cli.Failed, "is a link: somebody has tampered with it"},
		"a path that leads out of the file":                {tarOf(t, index, signed, "../../etc/cron.d/x=x"), names(aDigest), cli.Failed, "which would be outside of it: somebody has tampered with it"},
		"a link instead of an image":                       {tarOf(t, index, signed, strings.Replace(aManifest, "={}", "=-> /etc/passwd", 1)), names(aDigest), cli.Failed, "the file lacks image docker.io/library/app:2"},
		"what is signed is there twice":                    {tarOf(t, index, signed, "./"+signed), names(aDigest), cli.Failed, "twice, and nobody knows which counts"},
		"an envelope that is too long":                     {tarOf(t, index, signed+strings.Repeat(" ", api.MaxUpgradeBundle)), names(aDigest), cli.Failed, "at most"},
		"a list of images that is too long":                {tarOf(t, index+strings.Repeat(" ", 1<<20), signed), names(aDigest), cli.Failed, "at most"},
		"a manifest that is too long":                      {signedFile(t, aManifest+strings.Repeat(" ", 4<<20)), names(aDigest), cli.Failed, "at most"},
		"more files than any bundle has":                   {tarOf(t, many...), names(aDigest), cli.Failed, "was imported: it has more than 20000 files"},
		"a file that is said to be huge":                   {hugeFile(t, index, signed), names(aDigest), cli.Failed, "was imported: it ends in the middle, after 3 files"},
		"a hub that knows none":                            {signedFile(t), answersWith(http.StatusNotFound, "no such path"), cli.Failed, "no such path"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := newFakeHub(t).on("GET", "/pods", podList(marked)).on("POST", verifyOf, tt.verify)
			h.edgehubctl(t, "import", "--container-runtime-endpoint", socketOfNobody(t), tt.file).has(t, tt.code, "", tt.says)
			if n := h.count("POST " + takeOf); n > 0 {
				t.Errorf("the hub has got it %d times", n)
			}
		})
	}
}

// TestTheImagesOfASignedBundle are found by their digests, and imported ahead under the names that were signed.
func TestTheImagesOfASignedBundle(t *testing.T) {
	file, err := os.Open(signedFile(t, aManifest))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	a, err := archive.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	h := newFakeHub(t).on("POST", verifyOf, sends(aTaken(withImages(map[string]string{"app:2": aDigest, "r.example/app:2@" + aDigest: aDigest}))))
	hub, err := hubclient.New(h.address, hubclient.TLSFiles{})
	if err != nil {
		t.Fatal(err)
	}
	target := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: aDigest, Size: 2}
	want := []engine.Wanted{{Image: "docker.io/library/app:2", Target: target, Ahead: true}, {Image: "r.example/app@" + aDigest, Target: target, Ahead: true}}
	if got, err := (&call{hub: hub}).signedImages(t.Context(), a, []byte(anEnvelope)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
}

// TestWhatTheHubVerifies is the envelope as the file has it, each time.
func TestWhatTheHubVerifies(t *testing.T) {
	var got []string
	records := func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		got = append(got, fmt.Sprint(string(text), err))
		sends(aTaken())(w, r)
	}
	h := newFakeHub(t).on("GET", "/pods", podList(marked)).on("POST", verifyOf, records).on("POST", takeOf, records)
	if r := h.edgehubctl(t, "import", signedFile(t)); r.code != cli.Done || len(got) != 2 || got[0] != anEnvelope+"<nil>" || got[1] != got[0] {
		t.Errorf("got %q, and %+v", got, r)
	}
}

// A bundle without images needs no containerd, and has the hub pull nothing.
func TestABundleWithoutImages(t *testing.T) {
	online := aTaken(decidedByTheCloud)
	const offered, notOffered = ": offered to pod shop/web-1\n", ": offered to no pod now: the cloud is there, and decides\n"
	const missing = "Pod shop/web-1 also needs app:2, which the file does not have: edgehubctl pull shop/web-1, or the import of another file, brings them\n"
	const toUpgrade = "To upgrade: edgehubctl upgrade shop/web-1\n"
	const notYet = "Pod shop/web-1 does not need revision 7c9b as of now; once edgehubctl pods shows that it does: edgehubctl pull shop/web-1\n"
	older := pod("shop", "web-1", oldRevision, running("a=app:1", "b=side:1"), targetOf("a=app:2"), ofRevision("aaaa"), needs(corev1.ConditionTrue, "aaaa"))
	runs := before
	runs.Spec.Containers = marked.Spec.DeepCopy().Containers
	runs.Spec.Containers[0].Image = "app:2"
	runs.Annotations, runs.Status = marked.Annotations, marked.Status
	tests := map[string]struct {
		taken api.UpgradeBundle
		pod   corev1.Pod
		pulls []api.ImagePull
		want  string
	}{
		"offline": {aTaken(), marked, nil, offered + missing},
		"offline, with the image of another pull":  {aTaken(), marked, []api.ImagePull{imagePull(api.Ready, image("docker.io/library/app:2", api.Ready, 1, 1))}, offered + toUpgrade},
		"offline, while that is pulled":            {aTaken(), marked, []api.ImagePull{imagePull(api.Pulling, image("app:2", api.Pulling, 0, 1))}, offered + missing},
		"offline, and only the revision is new":    {aTaken(), runs, nil, offered + toUpgrade},
		"online, and the cloud wants the same":     {online, marked, nil, notOffered + missing},
		"online, and the cloud wants nothing":      {online, before, nil, notOffered + notYet},
		"online, and the cloud wants an older one": {online, older, nil, notOffered + notYet},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := newFakeHub(t).on("GET", "/pods", podList(before), podList(tt.pod)).on("GET", api.ImagePulls, sends(api.ImagePullList{Items: tt.pulls})).
				on("POST", verifyOf, sends(tt.taken)).on("POST", takeOf, sends(tt.taken))
			want := offlineText + start.Local().Format(time.RFC3339) + tt.want
			h.edgehubctl(t, "import", "--container-runtime-endpoint=/none/s", signedFile(t)).is(t, cli.Done, want, "")
			h.on("GET", "/pods", podList(before), podList(tt.pod))
			h.edgehubctl(t, "import", "-o", "json", "--container-runtime-endpoint=/none/s", signedFile(t)).is(t, cli.Done, "[]\n", want)
		})
	}
}

func TestABundleWithoutContainerd(t *testing.T) {
	file := signedFile(t, aManifest)
	h := newFakeHub(t).on("GET", "/pods", podList(before)).on("POST", verifyOf, sends(aTaken(withImages(map[string]string{"app:2": aDigest}))))
	h.edgehubctl(t, "import", "--container-runtime-endpoint=/none/s", file).has(t, cli.Failed, "", "run this on the node itself")

	var long bytes.Buffer // what is no tar would be found out at its end
	w := gzip.NewWriter(&long)
	_, err := w.Write(make([]byte, 16<<20))
	path := filepath.Join(t.TempDir(), "long.gz")
	if err := errors.Join(err, w.Close(), os.WriteFile(path, long.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	h.edgehubctl(t, "import", "--container-runtime-endpoint=/none/s", path).has(t, cli.Failed, "", "run this on the node itself")
	if n := h.count("POST " + takeOf); n > 0 {
		t.Errorf("the hub has got it %d times", n)
	}
}

// TestABundleWhoseImagesAreOnTheNode is offered, and the hub retains them for the pods that need its version by now.
func TestABundleWhoseImagesAreOnTheNode(t *testing.T) {
	const post = pullOf + "?imported=true"
	full := "docker.io/library/app:2"
	ready, side := image("app:2", api.Ready, mib, mib), image("side:1", api.Queued, 0, 0)
	online := aTaken(decidedByTheCloud)
	tests := map[string]struct {
		taken http.HandlerFunc
		pod   corev1.Pod
		code  int
		out   string // after the first line and the images
		err   string
		posts int
	}{
		"offline, with an image that the pod runs": {sends(aTaken()), marked, cli.Done, "app:2: ready, 1.0 MiB\nside:1: ready, 1.0 MiB\nTo upgrade: edgehubctl upgrade shop/web-1\n", "", 1},
		"online, and the cloud wants the same":     {sends(online), marked, cli.Done, "app:2: ready, 1.0 MiB\nside:1: ready, 1.0 MiB\nTo upgrade: edgehubctl upgrade shop/web-1\n", "", 1},
		"online, and the cloud wants nothing":      {sends(online), before, cli.Done, "", "", 0},
		"the disk of the hub is full": {
			answersWith(http.StatusInternalServerError, "the bundle was not taken"), marked, cli.Failed, "",
			"the images are on the node, but the version of the bundle is not offered to any pod, as far as is known: the bundle was not taken; to try that again, import the file once more", 0,
		},
		"another one was taken meanwhile": {answersWith(http.StatusForbidden, "the bundle is refused: it brings revision number 7"), marked, cli.NotNow, "", "is not offered to any pod, as far as is known: the bundle is refused", 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := newFakeHub(t).on("POST", takeOf, tt.taken).on("GET", "/pods", podList(tt.pod)).on("POST", post, answersWith(http.StatusOK, "requested")).
				on("GET", pullOf, sends(imagePull(api.Pulling, ready, side))).
				on("GET", watchOf, breaksOff(lines(imagePull(api.Ready, ready, image("side:1", api.Ready, mib, mib)))))
			hub, err := hubclient.New(h.address, hubclient.TLSFiles{})
			if err != nil {
				t.Fatal(err)
			}
			var out, errs bytes.Buffer
			c := &call{out: &out, err: &errs, hub: hub, timing: hurried()}
			all := []imported{{Image: full, Digest: "sha256:1", Bytes: 3 * mib}}
			code := cli.Finish(&errs, "error", c.offer(t.Context(), []byte(anEnvelope), all))
			_, after, _ := strings.Cut(out.String(), full+": on the node, 3.0 MiB, sha256:1\n")
			result{code, after, errs.String()}.has(t, tt.code, tt.out, tt.err)
			if after != tt.out {
				t.Errorf("it says %q after the images, want %q", after, tt.out)
			}
			if n := h.count("POST " + post); n != tt.posts {
				t.Errorf("the hub was asked %d times to retain them", n)
			}
			if pods := len(all[0].Pods); pods != tt.posts {
				t.Errorf("as JSON it names %d pods", pods)
			}
		})
	}
}

// The real hub's answers are those that edgehubctl reads.
func TestRealBundles(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})), "\n", "\n  ")
	here := old(rollable)
	store, err := bundle.OpenStore(bundle.Options{
		Dir: t.TempDir(), Pods: func() ([]*corev1.Pod, bool) { return []*corev1.Pod{&here}, true }, Online: func() bool { return false },
		Changed: func() {}, Event: func(*corev1.ObjectReference, string, string, string) {}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if err := store.SetKeys(map[string]string{"alice": "publicKey: |\n  " + text + "\nnamespaces: [shop]\nnotAfter: 2999-01-01T00:00:00Z\n"}, now); err != nil {
		t.Fatal(err)
	}
	change := api.ImageChange{Name: "web", From: here.Spec.Containers[0].Image, To: "registry.example.com/shop/web:v2"}
	b := bundle.Bundle{
		Kind: "DaemonSet", Namespace: "shop", Name: "web", UID: "ds",
		Target: api.Target{Revision: newRevision, Number: 7, Containers: []api.TargetImage{{Name: "web", Image: change.To}}},
		Bases:  map[string][]api.ImageChange{"6e0a": {change}}, Issued: now, Expires: now.Add(time.Hour),
	}
	envelope, err := b.Sign(private)
	if err != nil {
		t.Fatal(err)
	}
	h := realHandlers(t, func(o *ota.Options) { o.Bundles = store }, page.Options{})
	changed := strings.Replace(string(envelope), `"payload":"e`, `"payload":"f`, 1)
	h.edgehubctl(t, "import", tarOf(t, "index.json={}", api.UpgradeBundleFile+"="+changed)).has(t, cli.NotNow, "", "was imported: the bundle is refused: none of the keys that this node knows has signed it")
	if taken := store.List(); len(taken) > 0 {
		t.Errorf("it has taken %+v", taken)
	}
	h.edgehubctl(t, "import", tarOf(t, "index.json={}", api.UpgradeBundleFile+"="+string(envelope))).
		has(t, cli.Done, offlineText+b.Expires.Local().Format(time.RFC3339)+": offered to pod shop/web-1\n", "")
	if taken := store.List(); len(taken) != 1 {
		t.Errorf("it has taken %+v", taken)
	}
}
