package engine

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []engineapi.Progress
		m := meter{report: func(p engineapi.Progress) { told = append(told, p) }}
		one, two := ocispec.Descriptor{Digest: "one", Size: 100}, ocispec.Descriptor{Digest: "two", Size: 10}
		m.set(one, 50) // nobody expects it yet
		m.expect([]ocispec.Descriptor{one, two, one})
		m.set(one, 10) // too soon to tell
		time.Sleep(reportEvery)
		m.set(one, 60)
		m.set(ocispec.Descriptor{Digest: "other"}, 1000)
		time.Sleep(reportEvery)
		m.set(one, 0) // it was damaged
		m.set(one, 100)
		m.set(two, 10) // all is there, which is reported at once
		want := []engineapi.Progress{{Done: 0, Total: 110}, {Done: 60, Total: 110}, {Done: 0, Total: 110}, {Done: 110, Total: 110}}
		if !slices.Equal(told, want) {
			t.Errorf("got %v, want %v", told, want)
		}
	})
}
