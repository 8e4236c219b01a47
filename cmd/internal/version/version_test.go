package version

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestInfo(t *testing.T) {
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
			wantVersion: Unknown, wantCommit: Unknown,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := newInfo(tt.version, tt.commit, tt.build)
			if got.Version != tt.wantVersion || got.Commit != tt.wantCommit {
				t.Errorf("got version %q, commit %q; want %q, %q", got.Version, got.Commit, tt.wantVersion, tt.wantCommit)
			}
			if !strings.HasPrefix(got.Go, "go") || !strings.Contains(got.Platform, "/") {
				t.Errorf("got Go version %q on platform %q", got.Go, got.Platform)
			}
		})
	}
}

func TestStringIsOneLine(t *testing.T) {
	got := String("edgehub")
	if !strings.HasPrefix(got, "edgehub ") || strings.Contains(got, "\n") {
		t.Errorf("got %q, want one line that starts with the program's name", got)
	}
}
