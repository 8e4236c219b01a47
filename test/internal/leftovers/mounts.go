package leftovers

import (
	"os"
	"strings"

	"github.com/edgehub-io/edgehub/test/cluster/tempdir"
	"github.com/edgehub-io/edgehub/test/internal/smalldisk"
)

// mount is a line of /proc/self/mounts.
type mount struct{ source, target string }

// escapes are what the kernel writes for characters that would end a field.
var escapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`) //nolint:gochecknoglobals // never changed

func readMounts() ([]mount, error) {
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	var all []mount
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 {
			all = append(all, mount{escapes.Replace(fields[0]), escapes.Replace(fields[1])})
		}
	}
	return all, nil
}

// stray reports whether it is a disk of package smalldisk whose test has ended.
func (m mount) stray() bool {
	pid, ok := strings.CutPrefix(m.source, smalldisk.SourcePrefix)
	return ok && !lives(pid)
}

func mountsBelow(folder string) ([]string, error) {
	all, err := readMounts()
	var below []string
	for _, m := range all {
		if inside(m.target, folder) {
			below = append(below, m.target)
		}
	}
	return below, err
}

func inside(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, folder+"/")
}

func within(path string, folders []*tempdir.Dir) bool {
	for _, f := range folders {
		if inside(path, f.Path) {
			return true
		}
	}
	return false
}
