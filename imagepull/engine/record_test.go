package engine

import (
	"slices"
	"testing"
)

func TestReleasedLabels(t *testing.T) {
	mine, other := holderLabel("mine"), holderLabel("other")
	tests := map[string]struct {
		labels map[string]string
		want   []string
	}{
		"a record of somebody else": {map[string]string{managedLabel: managed, pinnedLabel: pinned}, nil},
		"one that another image holds": {
			map[string]string{other: "other", pinLabel: "other", pinnedLabel: pinned}, nil,
		},
		"one that only this image holds": {
			map[string]string{mine: "mine", pinLabel: "mine", pinnedLabel: pinned, managedLabel: managed},
			[]string{"labels." + mine, "labels." + pinLabel, "labels." + pinnedLabel},
		},
		"one that both hold": {
			map[string]string{mine: "mine", other: "other", pinLabel: "mine", pinnedLabel: pinned},
			[]string{"labels." + mine},
		},
		"one that was pinned before": {
			map[string]string{mine: "mine", pinnedLabel: pinned},
			[]string{"labels." + mine},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := released(tt.labels, "mine"); !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
