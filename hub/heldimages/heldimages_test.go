package heldimages

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWithoutContainerd(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "containerd.sock")
	for name, tt := range map[string]struct {
		noted, fallback string
		fails           bool
	}{
		"nothing was ever held":              {},
		"what was noted counts":              {"unix://" + absent, "", true},
		"a folder of an earlier version":     {"", "unix://" + absent, true},
		"what was noted counts all the more": {"unix://" + absent, "unix:///elsewhere.sock", true},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			if tt.noted != "" {
				for range 2 {
					if err := Note(root, tt.noted); err != nil {
						t.Fatal(err)
					}
				}
			}
			names, err := Release(t.Context(), root, tt.fallback)
			if len(names) > 0 || (err != nil) != tt.fails || err != nil && !strings.Contains(err.Error(), "`ctr -a "+absent+" -n k8s.io leases ls") {
				t.Errorf("released %v: %v", names, err)
			}
			if _, err := os.Stat(noteFile(root)); (err == nil) != (tt.noted != "") {
				t.Errorf("the note for the next attempt: %v", err)
			}
		})
	}
}
