package cli

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// Set by the linker, and never written by code:
//
//	-ldflags '-X github.com/edgehub-io/edgehub/cmd/internal/cli.version=v1.2.3
//	          -X github.com/edgehub-io/edgehub/cmd/internal/cli.commit=abc1234'
//
// Both stay empty in a build without these flags, such as `go install`.
var (
	version string
	commit  string
)

// commitLength is as much of a commit's hash as git shows by default in a repository of this size.
const commitLength = 7

// Version returns the version of this build, such as v1.2.3, or unknown.
func Version() string {
	version, _ := buildOf()
	return version
}

// VersionLine returns one line for people, such as "edgehub v1.2.3 (commit abc1234, go1.27.4, linux/amd64)".
func VersionLine(program string) string {
	version, commit := buildOf()
	return fmt.Sprintf("%s %s (commit %s, %s, %s/%s)", program, version, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func buildOf() (string, string) {
	build, _ := debug.ReadBuildInfo() // nil in a binary built without modules
	return describe(version, commit, build)
}

// describe returns what the linker has set; where it has set nothing, the build information in the binary.
func describe(version, commit string, build *debug.BuildInfo) (string, string) {
	if build == nil {
		build = new(debug.BuildInfo)
	}
	const unknown = "unknown"
	return cmp.Or(version, build.Main.Version, unknown), cmp.Or(commit, revision(build), unknown)
}

// revision is the abbreviated commit the go command stamped into the binary, or
// "" when it stamped none. Changes on top of the commit show as "-dirty".
func revision(build *debug.BuildInfo) string {
	var hash, dirty string
	for _, s := range build.Settings {
		switch {
		case s.Key == "vcs.revision":
			hash = s.Value[:min(commitLength, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if hash == "" {
		return ""
	}
	return hash + dirty
}
