package podfiles

import (
	"log/slog"
	"os"
	"path/filepath"
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
	if entries, err := os.ReadDir(top); err != nil || len(entries) != 1 {
		t.Errorf("got %v %v, want the folder alone", entries, err)
	}
	if err := f.Put(types.NamespacedName{Namespace: "ns", Name: "x..y"}, 1); err != nil {
		t.Error(err)
	}
}
