package upgrade

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A node may write anything into the annotation of its Node.
func TestMissingOnANodeIsFitForATerminal(t *testing.T) {
	good := Missing{Kind: "DaemonSet", Namespace: "shop", Name: "camera", Why: "refused"}
	with := func(change func(*Missing)) Missing {
		m := good
		change(&m)
		return m
	}
	node := &corev1.Node{}
	node.Annotations = map[string]string{MissingAnnotation: EncodeMissing([]Missing{
		with(func(m *Missing) { m.Kind = "Pod" }),
		with(func(m *Missing) { m.Namespace = "shop; rm -rf /" }),
		with(func(m *Missing) { m.Name = "\x1b[2Jcamera" }),
		with(func(m *Missing) { m.Name = "" }),
		with(func(m *Missing) { m.Why = "one\n\x1b[31mtwo" }),
		with(func(m *Missing) { m.Why = strings.Repeat("é", MaxMissingWhy) }),
		good,
	})}
	got, err := MissingOn(node)
	want := []Missing{
		with(func(m *Missing) { m.Why = "one  [31mtwo" }),
		with(func(m *Missing) { m.Why = strings.Repeat("é", MaxMissingWhy/2) + "..." }),
		good,
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	node.Annotations[MissingAnnotation] = "{"
	if got, err := MissingOn(node); err == nil {
		t.Errorf("got %+v of no JSON", got)
	}
}
