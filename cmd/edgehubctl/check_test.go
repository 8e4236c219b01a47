package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
)

// Checks that run are in test/install, with a systemd.
func TestCheck(t *testing.T) {
	for name, tt := range map[string]struct {
		mode     os.FileMode // of the folder; 0: there is none
		args     []string
		code     int
		out, err string
	}{
		"no checks":                      {0, nil, cli.Done, "No checks in ", ""},
		"no checks, as JSON":             {0, []string{"-o", "json"}, cli.Done, "[]\n", ""},
		"no checks, of a pod":            {0, []string{"shop/web-1"}, cli.Done, "No checks in ", ""},
		"a pod that is not there":        {0, []string{"shop/web-2"}, cli.Failed, "", "this node has no pod shop/web-2"},
		"two pods":                       {0, []string{"shop/web-1", "shop/web-2"}, cli.Usage, "", "want one POD, got 2 words"},
		"a folder that anybody may fill": {0o777, nil, cli.Failed, "", "required.d: "},
	} {
		t.Run(name, func(t *testing.T) {
			h := newFakeHub(t).on("GET", "/pods", podList(old()))
			dir := t.TempDir()
			if tt.mode != 0 {
				if err := os.Mkdir(filepath.Join(dir, "required.d"), tt.mode); err != nil {
					t.Fatal(err)
				}
				if err := os.Chmod(filepath.Join(dir, "required.d"), tt.mode); err != nil {
					t.Fatal(err)
				}
			} else {
				dir = filepath.Join(dir, "none")
			}
			var out, errs bytes.Buffer
			c := &call{out: &out, err: &errs, timing: hurried(), checkDir: dir}
			code := c.program().Run(t.Context(), append([]string{"--address", h.address, "check"}, tt.args...), &out, &errs)
			result{code, out.String(), errs.String()}.has(t, tt.code, tt.out, tt.err)
		})
	}
}
