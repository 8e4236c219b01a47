package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/cmd/edgehubctl/hubclient"
	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/ota/api"
)

// socketOfNobody is a socket that accepts connections, and never answers: what is refused here is refused before containerd
// is asked.
func socketOfNobody(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return path
}

// layoutOf writes an OCI layout with images under these names.
func layoutOf(t *testing.T, names ...string) string {
	t.Helper()
	list := ""
	for i, name := range names {
		list += fmt.Sprintf(`%.*s{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:%064d","size":9,"annotations":{"org.opencontainers.image.ref.name":%q}}`, min(i, 1), ",", i, name)
	}
	return tarOf(t, `index.json={"manifests":[`+list+`]}`)
}

// tarOf writes a tar of files, NAME=TEXT, and returns its path.
func tarOf(t *testing.T, files ...string) string {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		name, text, _ := strings.Cut(f, "=")
		header := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}
		if to, isLink := strings.CutPrefix(text, "-> "); isLink {
			*header, text = tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to}, ""
		}
		err := w.WriteHeader(header)
		if err == nil {
			_, err = io.WriteString(w, text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "images.tar")
	if err := errors.Join(w.Close(), os.WriteFile(path, out.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestImportsThatAreRefused(t *testing.T) {
	waiting := pod("shop", "web-1", oldRevision, running("a=r.example/app:1"), targetOf("a=r.example/app:2", "b=r.example/side:2"), needs(corev1.ConditionTrue, newRevision))
	tests := map[string]struct {
		pods []corev1.Pod
		file string
		says string
	}{
		"a file that is not there": {[]corev1.Pod{waiting}, "/none/images.tar", "no such file"},
		"a folder":                 {[]corev1.Pod{waiting}, t.TempDir(), "is a directory"},
		"what no pod names":        {[]corev1.Pod{waiting}, layoutOf(t, "r.example/app:3", "r.example/pause:1", "2"), "it has r.example/app:3, r.example/pause:1, 1 image without a name, which no pod of this node names: their next versions name r.example/app:2, r.example/side:2; save one under that whole name"},
		"no image":                 {[]corev1.Pod{waiting}, layoutOf(t), "it has no image"},
		"nobody waits":             {nil, layoutOf(t, "r.example/app:2"), "no pod of this node waits for an upgrade"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := newFakeHub(t).on("GET", "/pods", podList(tt.pods...))
			h.edgehubctl(t, "import", "--container-runtime-endpoint", socketOfNobody(t), tt.file).has(t, cli.Failed, "", tt.says)
		})
	}
	t.Run("without containerd", func(t *testing.T) {
		h := newFakeHub(t).on("GET", "/pods", podList(waiting))
		h.edgehubctl(t, "import", "--container-runtime-endpoint", "/none/s", layoutOf(t, "r.example/app:2")).has(t, cli.Failed, "", "run this on the node itself")
	})
}

func TestImagesThatPodsName(t *testing.T) {
	one := pod("shop", "web-1", oldRevision, running("a=app:1", "/v=data:1"), targetOf("a=app:2", "b=app:2", "c=side:1"))
	two := pod("shop", "web-2", oldRevision, running("a=app:1"), targetOf("a=app:2"))
	broken := pod("shop", "web-3", oldRevision, running("a=App:1"), annotated("{"))
	got := fmt.Sprint(imagesOf([]*corev1.Pod{&one, &two, &broken}))
	want := "map[docker.io/library/app:1:[] docker.io/library/app:2:[shop/web-1 shop/web-2] docker.io/library/data:1:[] docker.io/library/side:1:[shop/web-1]]"
	if got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestTheHubTakesOverWhatWasImported(t *testing.T) {
	const post = pullOf + "?imported=true"
	image1, image2 := "docker.io/library/app:2", "docker.io/library/app@sha256:1"
	all := []imported{{Image: image1, Digest: "sha256:1", Bytes: 3 * mib, Pods: []string{"shop/web-1"}}, {Image: image2, Digest: "sha256:1", Bytes: 3 * mib}}
	ready, pulling := image("app:2", api.Ready, mib, mib), image("app:2", api.Pulling, 0, mib)
	other := image("side:2", api.Queued, 0, 0)
	tests := map[string]struct {
		posted http.HandlerFunc
		states []http.HandlerFunc
		code   int
		out    string
		err    string
	}{
		"at once": {answersWith(http.StatusOK, "requested"), []http.HandlerFunc{sends(imagePull(api.Ready, ready))}, cli.Done, "To upgrade: edgehubctl upgrade shop/web-1", ""},
		"after some time": {
			answersWith(http.StatusOK, "requested"), []http.HandlerFunc{sends(imagePull(api.Pulling, pulling))},
			cli.Done, "app:2: pulling, 0%, 0.0 of 1.0 MiB\napp:2: ready, 1.0 MiB\nTo upgrade: edgehubctl upgrade shop/web-1", "",
		},
		"and others are missing": {
			answersWith(http.StatusOK, "requested"), []http.HandlerFunc{sends(imagePull(api.Queued, ready, other))},
			cli.Done, image2 + ": on the node, 3.0 MiB, sha256:1\n", "also needs side:2, which the file does not have",
		},
		"not, as the pod needs no upgrade by now": {
			answersWith(http.StatusForbidden, "it needs no upgrade"), nil, cli.NotNow, image1 + ": on the node, 3.0 MiB, sha256:1",
			"on the node, but the hub does not keep them: it needs no upgrade; to try that again: edgehubctl pull shop/web-1",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := newFakeHub(t).on("POST", post, tt.posted)
			if tt.states != nil {
				h.on("GET", pullOf, tt.states...).on("GET", watchOf, breaksOff(lines(imagePull(api.Pulling, pulling), imagePull(api.Ready, ready))))
			}
			hub, err := hubclient.New(h.address, hubclient.TLSFiles{})
			if err != nil {
				t.Fatal(err)
			}
			var out, errs bytes.Buffer
			c := &call{out: &out, err: &errs, hub: hub, timing: hurried()}
			code := cli.Finish(&errs, "error", c.adopt(t.Context(), all))
			result{code, out.String(), errs.String()}.has(t, tt.code, tt.out, tt.err)
			if advised := strings.Contains(out.String(), "To upgrade"); advised != (tt.err == "") {
				t.Errorf("it says how to upgrade: %t", advised)
			}
		})
	}
}
