package archive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// entry is a file in a tar; with a link, a link.
type entry struct {
	name, text, link string
	change           func(*tar.Header)
}

func pack(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(e.text))}
		if e.link != "" {
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, e.link, 0
		}
		if e.change != nil {
			e.change(h)
		}
		err := w.WriteHeader(h)
		if err == nil {
			_, err = io.WriteString(w, e.text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

const manifest = `{"schemaVersion":2}`

// index returns index.json with an image under each name; each even one has the same manifest.
func index(names ...string) entry {
	var all []string
	for i, name := range names {
		d := digest.FromString(manifest)
		if i%2 == 1 {
			d = digest.FromString("another")
		}
		all = append(all, fmt.Sprintf(`{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":%q,"size":%d,"annotations":{"org.opencontainers.image.ref.name":%q}}`, d, len(manifest), name))
	}
	return entry{name: "index.json", text: `{"schemaVersion":2,"manifests":[` + strings.Join(all, ",") + `]}`}
}

func blobEntry(text string) entry {
	return entry{name: "blobs/sha256/" + digest.FromString(text).Encoded(), text: text}
}

// save returns the files of docker save with a layer under each name.
func save(config string, tags []string, layers ...string) []entry {
	list, err := json.Marshal([]saved{{Config: config, RepoTags: tags, Layers: layers}})
	if err != nil {
		panic(err)
	}
	return []entry{{name: "manifest.json", text: string(list)}}
}

func configOf(layers ...string) string {
	var diffs []string
	for _, l := range layers {
		diffs = append(diffs, fmt.Sprintf("%q", digest.FromString(l)))
	}
	return `{"rootfs":{"diff_ids":[` + strings.Join(diffs, ",") + `]}}`
}

func TestWhatAPodMeans(t *testing.T) {
	d := digest.FromString(manifest)
	nested := `{"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"` + d.String() + `","size":3}]}`
	inNested := entry{name: "index.json", text: `{"manifests":[{"mediaType":"application/vnd.oci.image.index.v1+json","digest":"` + digest.FromString(nested).String() + `","size":9}]}`}
	tests := map[string]struct {
		entries []entry
		name    string
		want    digest.Digest // "": it is not found
	}{
		"the whole name":                     {[]entry{index("r.example/app:2"), blobEntry(manifest)}, "r.example/app:2", d},
		"a short name":                       {[]entry{index("app:2")}, "docker.io/library/app:2", d},
		"behind ./":                          {[]entry{{name: "./index.json", text: index("app:2").text}}, "docker.io/library/app:2", d},
		"another tag":                        {[]entry{index("r.example/app:2")}, "r.example/app:1", ""},
		"another registry":                   {[]entry{index("r.example/app:2")}, "s.example/app:2", ""},
		"a tag alone is no name":             {[]entry{index("2")}, "docker.io/library/2:latest", ""},
		"what is no name of an image":        {[]entry{index("App:2")}, "docker.io/library/app:2", ""},
		"the digest, whatever the name":      {[]entry{index("2"), blobEntry(manifest)}, "r.example/app@" + d.String(), d},
		"the digest of one in an index":      {[]entry{inNested, blobEntry(nested), blobEntry(manifest)}, "r.example/app@" + d.String(), d},
		"the digest of what is not there":    {[]entry{inNested, blobEntry(nested)}, "r.example/app@" + d.String(), ""},
		"another digest, in spite of a name": {[]entry{index("r.example/app:2")}, "r.example/app@" + digest.FromString("x").String(), ""},
		"the second of two":                  {[]entry{index("app:1", "app:2")}, "docker.io/library/app:2", digest.FromString("another")},
		"the same twice":                     {[]entry{index("app:1", "b:1", "app:1")}, "docker.io/library/app:1", d},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			a, err := Open(bytes.NewReader(pack(t, tt.entries...)))
			if err != nil {
				t.Fatal(err)
			}
			got, ok, err := a.Find(tt.name)
			if ok != (tt.want != "") || got.Digest != tt.want || err != nil {
				t.Errorf("got %v, %v, %v", got, ok, err)
			}
		})
	}
}

func TestSavedByDocker(t *testing.T) {
	zipped := func(text string) string {
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		_, _ = io.WriteString(w, text) // into memory
		_ = w.Close()
		return out.String()
	}
	config := configOf("one", "two", "one")
	name := digest.FromString(config).Encoded() + ".json"
	layers := []string{"a/layer.tar", "b/layer.tar", "c/layer.tar"}
	plain := append(save(name, []string{"app:2"}, layers...), entry{name: name, text: config}, entry{name: "a/layer.tar", text: "one"}, entry{name: "b/layer.tar", text: "two"})
	tests := map[string]struct {
		entries []entry
		blobs   []string
	}{
		"with a link to an equal layer": {append(slices.Clone(plain), entry{name: "c/layer.tar", link: "../a/layer.tar"}), []string{"one", "two", config}},
		"with a layer in gzip":          {append(slices.Clone(plain), entry{name: "c/layer.tar", text: zipped("one")}), []string{"one", "two", zipped("one"), config}},
	}
	for what, tt := range tests {
		t.Run(what, func(t *testing.T) {
			var before digest.Digest
			for range 2 {
				a, err := Open(bytes.NewReader(pack(t, tt.entries...)))
				if err != nil {
					t.Fatal(err)
				}
				got, ok, err := a.Find("docker.io/library/app:2")
				if err != nil || !ok || before != "" && got.Digest != before {
					t.Errorf("got %v, %v, %v, and before that %s", got, ok, err, before)
				}
				before = got.Digest
				for _, text := range tt.blobs {
					part, ok := a.Blob(digest.FromString(text))
					if !ok {
						t.Fatalf("there is no blob %q", text)
					}
					if read, err := io.ReadAll(part); err != nil || string(read) != text {
						t.Errorf("a blob is %q, %v; want %q", read, err, text)
					}
				}
				if got, ok, _ := a.Find("docker.io/library/app@" + digest.FromString("x").String()); ok {
					t.Errorf("a pod that names a digest gets %v, which has no manifest of a registry", got)
				}
			}
		})
	}
	t.Run("beside an OCI layout, which counts", func(t *testing.T) {
		a, err := Open(bytes.NewReader(pack(t, append(slices.Clone(plain), index("app:2"), entry{name: "c/layer.tar", text: "one"})...)))
		if err != nil {
			t.Fatal(err)
		}
		if got, _, _ := a.Find("docker.io/library/app:2"); got.Digest != digest.FromString(manifest) {
			t.Errorf("got %v", got)
		}
	})
}

func TestFilesThatAreRefused(t *testing.T) {
	config, tags := configOf("one"), []string{"app:2"}
	good := pack(t, blobEntry(strings.Repeat("x", 5000)), index("app:2"))
	many := make([]entry, filesAtMost+1)
	for i := range many {
		many[i] = entry{name: fmt.Sprint(i)}
	}
	tests := map[string]struct {
		file []byte
		says string
	}{
		"nothing":                             {nil, "no tar"},
		"no tar":                              {bytes.Repeat([]byte("no tar"), 1000), "no tar"},
		"cut in a file":                       {good[:3000], "not copied to its end"},
		"cut between two files":               {good[:512+5120], "not copied to its end"},
		"a path that fills the memory":        {pack(t, index("app:2"), entry{name: strings.Repeat("x", pathLimit+1)}), "path of more than"},
		"a link that does":                    {pack(t, index("app:2"), entry{name: "l", link: strings.Repeat("x", pathLimit+1)}), "path of more than"},
		"neither of both":                     {pack(t, entry{name: "a", text: "b"}), "neither index.json"},
		"a path upward":                       {pack(t, index("app:2"), entry{name: "blobs/../../etc/passwd", text: "x"}), "tampered"},
		"an absolute path":                    {pack(t, index("app:2"), entry{name: "/etc/passwd", text: "x"}), "tampered"},
		"a file twice":                        {pack(t, index("app:2"), blobEntry("x"), blobEntry("x")), "twice"},
		"the list twice":                      {pack(t, index("app:2"), index("app:3")), "twice"},
		"a file twice, by another path":       {pack(t, index("app:2"), entry{name: "./index.json", text: "{}"}), "twice"},
		"a device":                            {pack(t, index("app:2"), entry{name: "d", change: func(h *tar.Header) { h.Typeflag = tar.TypeChar }}), "neither a file nor a folder"},
		"a hard link":                         {pack(t, index("app:2"), entry{name: "d", change: func(h *tar.Header) { h.Typeflag, h.Linkname = tar.TypeLink, "index.json" }}), "neither a file nor a folder"},
		"a list that is no JSON":              {pack(t, entry{name: "index.json", text: "{"}), "cannot be read"},
		"a list that is too long":             {pack(t, entry{name: "index.json", text: strings.Repeat(" ", listLimit+1)}), "may have"},
		"too many files":                      {pack(t, many...), "more than"},
		"one name for two images":             {pack(t, index("app:2", "app:2")), "two images of the name"},
		"a missing configuration":             {pack(t, save("c.json", []string{"app:2"}, "l")...), "missing"},
		"a missing layer":                     {pack(t, append(save("c.json", tags, "l"), entry{name: "c.json", text: config})...), "missing"},
		"another number of layers":            {pack(t, append(save("c.json", tags), entry{name: "c.json", text: config})...), "another number of layers"},
		"a configuration that was changed":    {pack(t, append(save(digest.FromString("x").Encoded()+".json", tags, "l"), entry{name: digest.FromString("x").Encoded() + ".json", text: config})...), "changed"},
		"a link out of the file":              {pack(t, append(save("c.json", tags, "l"), entry{name: "c.json", text: config}, entry{name: "l", link: "../../etc/passwd"})...), "missing"},
		"a link to a link":                    {pack(t, append(save("c.json", tags, "l"), entry{name: "c.json", text: config}, entry{name: "l", link: "m"}, entry{name: "m", link: "l"})...), "missing"},
		"a layer whose digest is not one":     {pack(t, append(save("c.json", tags, "l"), entry{name: "c.json", text: `{"rootfs":{"diff_ids":["x"]}}`}, entry{name: "l", text: "x"})...), "no digest"},
		"a configuration without any content": {pack(t, append(save("c.json", tags, "l"), entry{name: "c.json"})...), "cannot be read"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			a, err := Open(bytes.NewReader(tt.file))
			if err == nil {
				_, _, err = a.Find("docker.io/library/app:2")
			}
			failure, ok := errors.AsType[*engineapi.Error](err)
			if !ok || failure.Reason != engineapi.Corrupt || !strings.Contains(failure.Error(), tt.says) {
				t.Errorf("got %v, want it to say %q", err, tt.says)
			}
		})
	}
}

func TestMember(t *testing.T) {
	const name = "about.json"
	typed := func(flag byte) func(*tar.Header) {
		return func(h *tar.Header) { h.Typeflag, h.Linkname, h.Size = flag, "index.json", 0 }
	}
	tests := map[string]struct {
		entries []entry
		want    string // "": there is none
		says    string // what an error says
	}{
		"it is there":               {[]entry{{name: name, text: "1234"}}, "1234", ""},
		"it is there, behind ./":    {[]entry{{name: "./" + name, text: "1234"}}, "1234", ""},
		"there is none":             {nil, "", ""},
		"elsewhere":                 {[]entry{{name: "x/" + name, text: "1234"}}, "", ""},
		"a folder":                  {[]entry{{name: name + "/", change: typed(tar.TypeDir)}}, "", ""},
		"it is too large":           {[]entry{{name: name, text: "12345"}}, "", "has 5 B, and may have 4 B at most"},
		"a link":                    {[]entry{{name: name, link: "other"}, {name: "other", text: "1234"}}, "", "is a link"},
		"a link to nothing":         {[]entry{{name: name, link: "other"}}, "", "is a link"},
		"a hard link":               {[]entry{{name: name, change: typed(tar.TypeLink)}}, "", "neither a file nor a folder"},
		"a path that leads upward":  {[]entry{{name: "../" + name, text: "1234"}}, "", "outside"},
		"it is there twice":         {[]entry{{name: name, text: "1234"}, {name: "./" + name, text: "5678"}}, "", "twice"},
		"a file, and a link to one": {[]entry{{name: name, text: "1234"}, {name: name, link: "other"}}, "", "twice"},
	}
	for title, tt := range tests {
		t.Run(title, func(t *testing.T) {
			var got []byte
			ok := false
			a, err := Open(bytes.NewReader(pack(t, append(tt.entries, index("app:2"))...)))
			if err == nil {
				got, ok, err = a.Member(name, 4)
			}
			if failure, _ := errors.AsType[*engineapi.Error](err); tt.says != "" && (failure == nil || failure.Reason != engineapi.Corrupt || !strings.Contains(failure.Error(), tt.says)) {
				t.Errorf("got %v, want it to say %q", err, tt.says)
			}
			if string(got) != tt.want || ok != (tt.want != "") || (err != nil) != (tt.says != "") {
				t.Errorf("got %q, %v, %v", got, ok, err)
			}
		})
	}
}

// TestWhatNoPodNamesIsNotRead lets damage of one image, or its size, not matter to another.
func TestWhatNoPodNamesIsNotRead(t *testing.T) {
	config := configOf("one")
	list, err := json.Marshal([]saved{{"c.json", []string{"app:2"}, []string{"l"}}, {"d.json", []string{"other:2"}, []string{"m"}}})
	if err != nil {
		t.Fatal(err)
	}
	a, err := Open(bytes.NewReader(pack(t, entry{name: "manifest.json", text: string(list)}, entry{name: "c.json", text: config}, entry{name: "l", text: "one"})))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := a.Find("docker.io/library/app:2"); !ok || err != nil {
		t.Errorf("got %v, %v", ok, err)
	}
}

func FuzzOpen(f *testing.F) {
	f.Add(pack(f, index("app:2"), blobEntry(manifest)))
	f.Add(pack(f, append(save("c.json", []string{"a:1"}, "l"), entry{name: "c.json", text: configOf("x")}, entry{name: "l", link: "m"}, entry{name: "m", text: "x"})...))
	f.Fuzz(func(t *testing.T, file []byte) {
		a, err := Open(bytes.NewReader(file))
		if err != nil {
			return
		}
		names, _ := a.Names()
		for _, name := range names {
			d, ok, err := a.Find(name)
			if !ok {
				t.Errorf("%s is in the list, and not found", name)
			}
			if part, ok := a.Blob(d.Digest); ok && err == nil {
				if _, err := io.Copy(io.Discard, part); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("%s cannot be read: %v", d.Digest, err)
				}
			}
		}
	})
}

func TestPlain(t *testing.T) {
	tarred := pack(t, index("app:2"), blobEntry(strings.Repeat("x", 100_000)))
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	if _, err := w.Write(tarred); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	damaged := slices.Clone(zipped.Bytes())
	damaged[len(damaged)-6] ^= 1 // of the checksum
	tests := map[string]struct {
		file    []byte
		pipe    bool
		minFree int
		says    string // "": it can be read
		copied  bool
	}{
		"a tar":                          {tarred, false, 0, "", false},
		"a tar from a pipe":              {tarred, true, 0, "", true},
		"gzip":                           {zipped.Bytes(), false, 0, "", true},
		"gzip from a pipe":               {zipped.Bytes(), true, 0, "", true},
		"gzip that was cut":              {zipped.Bytes()[:zipped.Len()/2], false, 0, "not copied to its end", true},
		"gzip that is damaged":           {damaged, false, 0, "damaged", true},
		"zstd":                           {zstdOf(t, tarred), false, 0, "", true},
		"zstd that was cut":              {zstdOf(t, tarred)[:60], true, 0, "not copied to its end", true},
		"more than may be on the disk":   {zipped.Bytes(), false, 100, "too little room", true},
		"an empty file is read as it is": {nil, false, 0, "", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			from := source(t, tt.file, tt.pipe)
			file, err := Plain(t.Context(), from, folder, tt.minFree, func(int64) {})
			if left, err := filepath.Glob(filepath.Join(folder, "*")); err != nil || len(left) > 0 {
				t.Errorf("it has left %v, %v", left, err)
			}
			if tt.says != "" {
				if err == nil || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("got %v, want it to say %q", err, tt.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = file.Close() }()
			if tt.copied == (file == from) {
				t.Errorf("copied: %t", file != from)
			}
			if len(tt.file) > 0 {
				if _, err := Open(file); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestAFullDisk is said to be what it is, also where nothing is to stay free.
func TestAFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = full.Close() }()
	err = spool(t.Context(), full, strings.NewReader("x"), t.TempDir(), 0, func(int64) {})
	if engineapi.AsError(err).Reason != engineapi.NoSpace {
		t.Error(err)
	}
}

func zstdOf(t *testing.T, text []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := zstd.NewWriter(&out)
	if err == nil {
		_, err = w.Write(text)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// source returns a file, or a pipe, to read text from.
func source(t *testing.T, text []byte, pipe bool) *os.File {
	t.Helper()
	if pipe {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Close() })
		go func() {
			_, _ = w.Write(text) // the reader may end before
			_ = w.Close()
		}()
		return r
	}
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}
