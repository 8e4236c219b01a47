// Package dist shows by its tests that a release is what it claims to be: the same bytes from
// whatever folder it is built, programs and images that run, and lists of contents that
// name what is linked in.
package dist

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// productRoot is the product's module, seen from this folder.
const productRoot = "../../.."

var (
	architectures = []string{"amd64", "arm64"}
	programs      = []string{"edgehub", "edgehub-controller", "edgehubctl", "kubectl-edgehub"}
)

const (
	goarch   = runtime.GOARCH
	version  = "v1.2.3"
	revision = "0123456789abcdef0123456789abcdef01234567"
	seconds  = "1700000000"
	date     = "2023-11-14T22:13:20Z"
)

// TestRelease builds twice, which is what costs, and looks at what came out in parts.
func TestRelease(t *testing.T) {
	here := filepath.Join(t.TempDir(), "here")
	there := filepath.Join(t.TempDir(), "another", "and-a-longer-path", "there")
	copySources(t, productRoot, here)
	copySources(t, here, there)
	first := build(t, here, "022")
	second := build(t, there, "077", "GOFLAGS=-ldflags=-w", "GOAMD64=v3", "GOEXPERIMENT=jsonv2", "TZ=Asia/Tokyo")
	t.Run("built in two folders by two users it is the same", func(t *testing.T) {
		other := read(t, filepath.Join(second, "SHA256SUMS"))
		for line := range strings.Lines(read(t, filepath.Join(first, "SHA256SUMS"))) {
			if !strings.Contains(other, line) {
				t.Errorf("the other has nothing like %s", line)
			}
		}
	})
	t.Run("the checksums are those of all files", func(t *testing.T) { checkSums(t, first) })
	for _, architecture := range architectures {
		t.Run("the archive for "+architecture+" has the programs, and nothing of who made it", func(t *testing.T) { checkArchive(t, first, architecture) })
	}
	t.Run("each program has a list of what it is linked from", func(t *testing.T) { checkLists(t, first) })
	t.Run("the images run", func(t *testing.T) { checkImages(t, first) })
}

// build makes a release of sources, and returns its folder. The umask and the environment
// are whoever's, and must not matter.
func build(t *testing.T, sources string, umask string, env ...string) string {
	t.Helper()
	out := filepath.Join(sources, "dist")
	began := time.Now()
	cmd := exec.CommandContext(t.Context(), "bash", "-c", "umask "+umask+` && exec make "$@"`, "bash",
		"dist", "DIST="+out, "VERSION="+version, "REVISION="+revision, "SOURCE_DATE_EPOCH="+seconds)
	cmd.Dir = sources
	cmd.Env = append(os.Environ(), env...)
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make dist: %v\n%s", err, output)
	}
	t.Logf("make dist took %s", time.Since(began).Round(100*time.Millisecond))
	return out
}

// copySources copies what a release is made of, also what is not committed yet.
func copySources(t *testing.T, from, to string) {
	t.Helper()
	skipped := []string{".git", "bin", "dist", "test", ".ci"}
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // somebody's temporary file
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		if d.IsDir() {
			if slices.Contains(skipped, name) {
				return fs.SkipDir
			}
			return os.MkdirAll(target, 0o755)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, content, 0o600) // not as they were
	})
	if err != nil {
		t.Fatal(err)
	}
}

func checkSums(t *testing.T, dir string) {
	cmd := exec.CommandContext(t.Context(), "sha256sum", "--quiet", "--strict", "--check", "SHA256SUMS")
	cmd.Dir = dir
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("sha256sum: %v\n%s", err, output)
	}
	list := read(t, filepath.Join(dir, "SHA256SUMS"))
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && path != "SHA256SUMS" && !strings.Contains(list, "  "+path+"\n") {
			t.Errorf("%s has no checksum", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// document is as much of SPDX as is looked at.
type document struct {
	SPDXVersion  string `json:"spdxVersion"`
	CreationInfo struct {
		Created string `json:"created"`
	} `json:"creationInfo"`
	Packages []struct {
		SPDXID           string `json:"SPDXID"`
		Name             string `json:"name"`
		VersionInfo      string `json:"versionInfo"`
		SourceInfo       string `json:"sourceInfo"`
		LicenseConcluded string `json:"licenseConcluded"`
		Checksums        []struct {
			Value string `json:"checksumValue"`
		} `json:"checksums"`
	} `json:"packages"`
	Relationships []struct {
		From string `json:"spdxElementId"`
		To   string `json:"relatedSpdxElement"`
	} `json:"relationships"`
}

func checkLists(t *testing.T, dir string) {
	for _, architecture := range architectures {
		for _, program := range programs {
			file := filepath.Join(dir, "linux-"+architecture, program)
			list := readDocument(t, filepath.Join(dir, "sbom", program+"-"+version+"-linux-"+architecture+".spdx.json"))
			checkList(t, file, list)
		}
	}
}

func checkList(t *testing.T, file string, list document) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{} // version and sum by module
	identifiers := map[string]bool{"SPDXRef-DOCUMENT": true}
	for _, p := range list.Packages {
		if identifiers[p.SPDXID] {
			t.Errorf("%s: two packages have the identifier %s", file, p.SPDXID)
		}
		identifiers[p.SPDXID] = true
		listed[p.Name] = p.VersionInfo + " " + strings.TrimPrefix(p.SourceInfo, "go.sum: ")
		if p.LicenseConcluded != "NOASSERTION" {
			t.Errorf("%s: a license is concluded for %s, and nobody has looked", file, p.Name)
		}
	}
	for _, r := range list.Relationships {
		if !identifiers[r.From] || !identifiers[r.To] {
			t.Errorf("%s: %s or %s is no package of the list", file, r.From, r.To)
		}
	}
	for _, module := range info.Deps {
		if want := module.Version + " " + module.Sum; listed[module.Path] != want {
			t.Errorf("%s: the list says %q of %s; want %q", file, listed[module.Path], module.Path, want)
		}
	}
	if got, want := listed["stdlib"], strings.TrimPrefix(runtime.Version(), "go")+" "; got != want {
		t.Errorf("%s: the list says %q of Go's own library; want %q", file, got, want)
	}
	if list.SPDXVersion != "SPDX-2.3" || list.CreationInfo.Created != date {
		t.Errorf("%s: the list is %s from %s", file, list.SPDXVersion, list.CreationInfo.Created)
	}
	if len(list.Packages) < 3 || len(list.Packages) != len(info.Deps)+2 || len(list.Packages[0].Checksums) != 1 {
		t.Errorf("%s: %d packages for %d modules, the program and Go", file, len(list.Packages), len(info.Deps))
	}
}

func readDocument(t *testing.T, file string) (d document) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, file)), &d); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return d
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
