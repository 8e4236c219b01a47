package imagepull

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"

	"github.com/edgehub-io/edgehub/test/cluster"
)

// TestTheDefaultLeavesKubeletAlone asks both programs for their defaults. kubelet's image
// garbage collection begins where its hard eviction does, with 15 % free, and ends with
// what its lower threshold leaves free.
func TestTheDefaultLeavesKubeletAlone(t *testing.T) {
	t.Parallel()
	kubernetes, err := cluster.BuildKubernetes(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	free := defaultOf(t, "image-pull-min-free", env.hubBin, "--help")
	used := defaultOf(t, "image-gc-low-threshold", kubernetes, "kubelet", "--help")
	if free < 100-used {
		t.Errorf("%d %% stay free; kubelet removes images until %d %% are", free, 100-used)
	}
}

// defaultOf is a number from a program's help.
func defaultOf(t *testing.T, flag, program string, args ...string) int {
	t.Helper()
	help, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, help)
	}
	found := regexp.MustCompile(`--` + flag + ` int.*\(default (\d+)\)`).FindSubmatch(help)
	if found == nil {
		t.Fatalf("no default of --%s in:\n%s", flag, help)
	}
	n, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
