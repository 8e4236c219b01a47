package api

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A node may write anything into the annotation of its Node.
func TestMissingOnANodeIsFitForATerminal(t *testing.T) {
	good := MissingWorkload{Kind: "DaemonSet", Namespace: "shop", Name: "camera", Why: "refused"}
	with := func(change func(*MissingWorkload)) MissingWorkload {
		m := good
		change(&m)
		return m
	}
	node := &corev1.Node{}
	node.Annotations = map[string]string{MissingAnnotation: EncodeMissing([]MissingWorkload{
		with(func(m *MissingWorkload) { m.Kind = "Pod" }),
		with(func(m *MissingWorkload) { m.Namespace = "shop; rm -rf /" }),
		with(func(m *MissingWorkload) { m.Name = "\x1b[2Jcamera" }),
		with(func(m *MissingWorkload) { m.Name = "" }),
		with(func(m *MissingWorkload) { m.Why = "one\n\x1b[31mtwo" }),
		with(func(m *MissingWorkload) { m.Why = strings.Repeat("é", MaxMissingWhy) }),
		good,
	})}
	got, err := MissingOn(node)
	want := []MissingWorkload{
		with(func(m *MissingWorkload) { m.Why = "one  [31mtwo" }),
		with(func(m *MissingWorkload) { m.Why = strings.Repeat("é", MaxMissingWhy/2) + "..." }),
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
