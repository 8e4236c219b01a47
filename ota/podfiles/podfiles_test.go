package podfiles

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// Names may come from whoever may create pods.
func TestANameLeadsNowhereElse(t *testing.T) {
	top := t.TempDir()
	f, _, err := Open[int](filepath.Join(top, "pods"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []types.NamespacedName{
		{Namespace: "ns", Name: "x/../../escaped"}, {Namespace: "../escaped", Name: "x"}, {Namespace: "x/..", Name: "y/z"},
	} {
		if err := f.Put(name, 1); err == nil {
			t.Errorf("%s was written", name)
		}
	}
	precious := filepath.Join(top, "precious.json")
	if err := os.WriteFile(precious, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.Delete(types.NamespacedName{Namespace: "ns", Name: "/../../precious"}); err != nil {
		t.Error(err)
	}
	if err := os.Remove(precious); err != nil {
		t.Errorf("another file was removed: %v", err)
	}
	if entries, err := os.ReadDir(top); err != nil || len(entries) != 1 {
		t.Errorf("got %v %v, want the folder alone", entries, err)
	}
	if err := f.Put(types.NamespacedName{Namespace: "ns", Name: "x..y"}, 1); err != nil {
		t.Error(err)
	}
}

// Damage must not keep the hub from starting.
func TestADamagedFileIsSetAside(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"ns_good.json": "7", "ns_damaged.json": "{", "ns_empty.json": "", "other": "8", "older.json": "8", ".ns_hidden.json": "9"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var lines strings.Builder
	log := slog.New(slog.NewTextHandler(&lines, nil))
	read, lost, err := Read[int](dir)
	if err != nil || len(read) != 1 || len(lost) != 2 {
		t.Errorf("without Open: %v, %v, %v", read, lost, err)
	}
	f, all, err := Open[int](dir, log)
	good, damaged := types.NamespacedName{Namespace: "ns", Name: "good"}, types.NamespacedName{Namespace: "ns", Name: "damaged"}
	if err != nil || len(all) != 1 || all[good] != 7 || f.Unread {
		t.Errorf("got %v, unread: %v, %v", all, f.Unread, err)
	}
	if got := lines.String(); !strings.Contains(got, "older.json") {
		t.Errorf("of a file with another name there is no line: %s", got)
	}
	if content, err := os.ReadFile(filepath.Join(dir, "ns_damaged.json.damaged")); err != nil || string(content) != "{" {
		t.Errorf("set aside is %q, %v", content, err)
	}
	if err := f.Put(damaged, 6); err != nil {
		t.Fatal(err)
	}
	if _, all, err := Open[int](dir, log); err != nil || len(all) != 2 || all[damaged] != 6 {
		t.Errorf("once it is written again: %v, %v", all, err)
	}
}

// There may be too many open files, or a bad block: that may pass.
func TestAFileThatCannotBeReadStays(t *testing.T) {
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	file, pod := filepath.Join(dir, "ns_pod.json"), types.NamespacedName{Namespace: "ns", Name: "pod"}
	if err := os.Symlink(file, file); err != nil { // to read it fails
		t.Fatal(err)
	}
	if f, all, err := Open[int](dir, log); err != nil || len(all) != 0 || !f.Unread {
		t.Fatalf("got %v, %v", all, err)
	}
	if to, err := os.Readlink(file); err != nil || to != file {
		t.Errorf("it is not as it was: %s, %v", to, err)
	}
	if err := errors.Join(os.Remove(file), os.WriteFile(file, []byte("7"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if f, all, err := Open[int](dir, log); err != nil || all[pod] != 7 || f.Unread {
		t.Errorf("once it can be read: %v, unread: %v, %v", all, f.Unread, err)
	}
}

// Somebody may have cleaned up while the hub runs.
func TestAFolderThatHasVanishedIsMadeAgain(t *testing.T) {
	dir, log := filepath.Join(t.TempDir(), "pods"), slog.New(slog.DiscardHandler)
	f, _, err := Open[int](dir, log)
	if err != nil {
		t.Fatal(err)
	}
	pod := types.NamespacedName{Namespace: "ns", Name: "pod"}
	if err := errors.Join(os.RemoveAll(dir), f.Put(pod, 7)); err != nil {
		t.Fatal(err)
	}
	if _, all, err := Open[int](dir, log); err != nil || all[pod] != 7 {
		t.Errorf("got %v, %v", all, err)
	}
}
