package dist

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// checkArchive looks into an archive with tar, and runs its programs where this machine
// can.
func checkArchive(t *testing.T, dir, architecture string) {
	folder := "edgehub-" + version + "-linux-" + architecture
	archive := filepath.Join(dir, folder+".tar.gz")
	var names []string
	for line := range strings.Lines(run(t, "tar", "--list", "--verbose", "--numeric-owner", "--utc", "--full-time", "--file", archive)) {
		fields := strings.Fields(line) // mode, owner, size, day, time, name
		names = append(names, fields[len(fields)-1])
		if fields[1] != "0/0" || fields[3]+"T"+fields[4]+"Z" != date {
			t.Errorf("not root's, or not from %s: %s", date, line)
		}
	}
	var want []string
	for _, name := range append([]string{"LICENSE", "README.md"}, programs...) {
		want = append(want, folder+"/"+name)
	}
	if !slices.Equal(names, want) {
		t.Errorf("%s has %q; want %q", folder, names, want)
	}
	if architecture != goarch {
		return
	}
	to := t.TempDir()
	run(t, "tar", "--extract", "--directory", to, "--file", archive)
	for _, program := range programs {
		if said, want := run(t, filepath.Join(to, folder, program), "--version"), program+" "+version+" (commit "+revision[:7]; !strings.HasPrefix(said, want) {
			t.Errorf("%s says of itself %q; want %q", program, said, want)
		}
	}
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}
