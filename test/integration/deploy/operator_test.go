package deploy

import (
	"path/filepath"
	"testing"
)

// applyOperatorCRDs makes the two kinds known that deploy/monitoring has of the
// Prometheus operator's. The apiserver takes any field in them; that each exists is
// checked against the operator's own types.
func applyOperatorCRDs(t *testing.T) {
	t.Helper()
	if out, err := env.cluster.Kubectl(t.Context(), "apply", "-f", filepath.Join("testdata", "operator-crds.yaml")); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := env.cluster.Kubectl(t.Context(), "wait", "--for=condition=Established", "--timeout=30s", "-f", filepath.Join("testdata", "operator-crds.yaml")); err != nil {
		t.Fatal(err)
	}
}
