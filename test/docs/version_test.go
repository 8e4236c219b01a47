package docs

import (
	"regexp"
	"testing"
)

// mentionedVersion is a version of edgehub: behind a program's or an image's name, or where
// one is built or checked out.
var mentionedVersion = regexp.MustCompile(`(?:edgehub[\w./-]*[ :-]|VERSION=|git checkout |newTag: )(v\d+\.\d+\.\d+)`)

// The release is set in the Makefile, and everything else names the same.
func TestVersionsAgree(t *testing.T) {
	found := regexp.MustCompile(`(?m)^release := (v\d+\.\d+\.\d+)$`).FindStringSubmatch(read(t, "Makefile"))
	if found == nil {
		t.Fatal("the Makefile sets no release")
	}
	release := found[1]
	for _, p := range currentPages(t) {
		for _, version := range names(p.text, mentionedVersion) {
			if version != release {
				t.Errorf("%s mentions %s; the release is %s", p.path, version, release)
			}
		}
	}
	chart := names(read(t, "deploy/helm/edgehub-controller/Chart.yaml"), regexp.MustCompile(`(?m)^version: (\S+)`))
	if len(chart) != 1 || "v"+chart[0] != release {
		t.Errorf("the chart has version %q; the release is %s", chart, release)
	}
}
