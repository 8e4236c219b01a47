package cli

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersion(t *testing.T) {
	stamped := &debug.BuildInfo{
		Main: debug.Module{Version: "v0.2.0"},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"},
			{Key: "vcs.modified", Value: "true"},
		},
	}
	clean := &debug.BuildInfo{Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"},
		{Key: "vcs.modified", Value: "false"},
	}}
	tests := map[string]struct {
		version, commit         string
		build                   *debug.BuildInfo
		wantVersion, wantCommit string
	}{
		"the linker's values win over the build information": {
			version: "v0.1.0", commit: "abc1234", build: stamped,
			wantVersion: "v0.1.0", wantCommit: "abc1234",
		},
		"the build information fills in what the linker was not told": {
			build:       stamped,
			wantVersion: "v0.2.0", wantCommit: "0123456-dirty",
		},
		"a clean checkout is not called dirty": {
			version: "v0.1.0", build: clean,
			wantVersion: "v0.1.0", wantCommit: "0123456",
		},
		"a build that knows nothing says so": {
			build:       nil,
			wantVersion: "unknown", wantCommit: "unknown",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			version, commit := describe(tt.version, tt.commit, tt.build)
			if version != tt.wantVersion || commit != tt.wantCommit {
				t.Errorf("got version %q, commit %q; want %q, %q", version, commit, tt.wantVersion, tt.wantCommit)
			}
		})
	}
}

func TestTheVersionIsOneLine(t *testing.T) {
	got := VersionLine("edgehub")
	if !strings.HasPrefix(got, "edgehub "+Version()+" (commit ") || strings.Contains(got, "\n") {
		t.Errorf("got %q, want one line that starts with the program's name and version", got)
	}
}
