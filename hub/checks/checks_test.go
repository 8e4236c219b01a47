package checks

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// newRunner returns a Runner of checks whose owner is who runs this test.
func newRunner(t *testing.T) *Runner {
	return &Runner{Dir: filepath.Join(t.TempDir(), "check"), Scratch: filepath.Join(t.TempDir(), "scratch"), owner: uint32(os.Getuid())}
}

// write writes a file in Dir, in folders of mode 755.
func (r *Runner) write(t *testing.T, name string, mode os.FileMode) {
	t.Helper()
	path := filepath.Join(r.Dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	chmod(t, path, mode)
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func TestChecksRunByTheirNamesAndTheRequiredOnesFirst(t *testing.T) {
	r := newRunner(t)
	if all, err := r.list(); err != nil || all != nil {
		t.Fatalf("without a folder: %v, %v", all, err)
	}
	for _, name := range []string{"wanted.d/00-first", "required.d/20-b", "required.d/10-a.sh", "other.d/x"} {
		r.write(t, name, 0o755)
	}
	all, err := r.list()
	if got, want := fmt.Sprint(all), "[required.d/10-a.sh required.d/20-b wanted.d/00-first]"; err != nil || got != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}

func TestFilesThatAreNotRun(t *testing.T) {
	r := newRunner(t)
	for name, tt := range map[string]struct {
		mode os.FileMode
		says string // "": it is run
	}{
		"755":                    {0o755, ""},
		"500":                    {0o500, ""},
		"group":                  {0o775, "others than root may write it"},
		"others":                 {0o757, "others than root may write it"},
		"no-program":             {0o644, "it is not executable"},
		".hidden":                {0o755, "its name"},
		"10-copy~":               {0o755, "its name"},
		"a b":                    {0o755, "its name"},
		"-q":                     {0o755, "its name"},
		strings.Repeat("x", 101): {0o755, "its name"},
	} {
		r.write(t, "required.d/"+name, tt.mode)
		info, err := os.Lstat(filepath.Join(r.Dir, "required.d", name))
		if err != nil {
			t.Fatal(err)
		}
		if got := r.refuse(info); (got == "") != (tt.says == "") || !strings.HasPrefix(got, tt.says) {
			t.Errorf("%s: %q", name, got)
		}
		others := Runner{owner: r.owner + 1}
		if got := others.refuse(info); tt.says == "" && !strings.HasPrefix(got, "it is not owned by root") {
			t.Errorf("%s of another user: %q", name, got)
		}
	}
	link, folder := filepath.Join(r.Dir, required, "link"), filepath.Join(r.Dir, required, "folder")
	if err := os.Symlink("755", link); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, folder} {
		if info, err := os.Lstat(path); err != nil || r.refuse(info) != "it is not a regular file" {
			t.Errorf("%s: %v, %q", path, err, r.refuse(info))
		}
	}
}

func TestARefusedFileHasFailed(t *testing.T) {
	r := newRunner(t)
	r.write(t, "required.d/10-open", 0o757)
	r.write(t, "wanted.d/20-none", 0o644)
	var got []Result
	for result, err := range r.Run(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, result)
	}
	want := []Result{
		{"required.d/10-open", true, false, "others than root may write it: chmod go-w"},
		{"wanted.d/20-none", false, false, "it is not executable: chmod 755"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	if err := r.Possible(t.Context()); err == nil || err.Error() != "check required.d/10-open is not run: others than root may write it: chmod go-w" {
		t.Errorf("%v", err)
	}
}

func TestFoldersThatOthersCanWriteHaveNoResult(t *testing.T) {
	for _, folder := range []string{"", "required.d", "wanted.d"} {
		r := newRunner(t)
		r.write(t, "required.d/a", 0o644)
		r.write(t, "wanted.d/a", 0o644)
		chmod(t, filepath.Join(r.Dir, folder), 0o777)
		results := 0
		for result, err := range r.Run(t.Context(), nil) {
			if results++; err == nil || !strings.HasSuffix(err.Error(), filepath.Join("check", folder)+": others than root may write it: chmod go-w") {
				t.Errorf("%+v, %v", result, err)
			}
		}
		if results != 1 || r.Possible(t.Context()) == nil {
			t.Errorf("%q: %d results", folder, results)
		}
	}
	r := newRunner(t)
	if err := os.WriteFile(r.Dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.Possible(t.Context()); err == nil {
		t.Error("a file for a folder is no checks")
	}
}

func TestOnlyTheLastLineOfTheOutputIsKept(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"nothing":          {"", ""},
		"a line":           {"no route", "no route"},
		"blank lines":      {"first\nno route \n\n\n", "no route"},
		"what is not text": {"no\x1b[31m\xffroute\n", "no [31m route"},
		"much":             {strings.Repeat("much\n", 1e6) + "no route\n", "no route"},
		"a long line":      {strings.Repeat("x", 1e6), strings.Repeat("x", maxWords) + "..."},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRunner(t)
			o, err := r.openOutput("unit")
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(o.path, []byte(tt.text), 0); err != nil { // as systemd opens it
				t.Fatal(err)
			}
			if got := o.end(); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
			if o.tail.Cap() > 1<<20 {
				t.Errorf("%d bytes are kept", o.tail.Cap())
			}
			if err := o.remove(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestWhatAChecksEnvironmentSaysOfThePod(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u", Labels: map[string]string{"controller-revision-hash": "new"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:v2"}, {Name: "log", Image: "log:v1"}}},
	}
	want := []string{"EDGEHUB_NAMESPACE=shop", "EDGEHUB_POD=web", "EDGEHUB_POD_UID=u", "EDGEHUB_REVISION=new", "EDGEHUB_IMAGES=app=app:v2 log=log:v1"}
	if got := environment(pod); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := environment(nil); got != nil {
		t.Errorf("without a pod: %q", got)
	}
}
