package cluster

import "os"

// NeedRoot skips a test that starts nodes when it does not run as root, and
// describes how to run it.
func NeedRoot(t interface {
	Helper()
	Skipf(format string, args ...any)
}) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skipf("SKIPPED: this test starts real nodes, which takes root: run it as root (sudo -E make test)")
	}
}
