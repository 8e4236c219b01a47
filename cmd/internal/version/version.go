// Package version reports which build of a program is running. Only main packages
// import it: nothing else may depend on the version.
package version

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// Set by the linker, and never written by code:
//
//	-ldflags '-X github.com/edgehub-io/edgehub/cmd/internal/version.version=v1.2.3
//	          -X github.com/edgehub-io/edgehub/cmd/internal/version.commit=abc1234'
//
// Both stay empty in a build without these flags, such as `go install`.
var (
	version string
	commit  string
)

// Unknown is the version or commit of a build that has neither from the linker nor from git.
const Unknown = "unknown"

// commitLength is as much of a commit's hash as git shows by default in a
// repository of this size.
const commitLength = 7

// Info describes one build.
type Info struct {
	Version  string // such as v1.2.3; Unknown without build information
	Commit   string // abbreviated; Unknown without build information
	Go       string // such as go1.27.4
	Platform string // such as linux/amd64
}

// Get returns what the linker has set; where it has set nothing, the build information in
// the binary.
func Get() Info {
	build, _ := debug.ReadBuildInfo() // nil in a binary built without modules
	return newInfo(version, commit, build)
}

// String returns one line for people, such as
// "edgehub v1.2.3 (commit abc1234, go1.27.4, linux/amd64)".
func String(program string) string {
	i := Get()
	return fmt.Sprintf("%s %s (commit %s, %s, %s)", program, i.Version, i.Commit, i.Go, i.Platform)
}

func newInfo(version, commit string, build *debug.BuildInfo) Info {
	if build == nil {
		build = new(debug.BuildInfo)
	}
	return Info{
		Version:  cmp.Or(version, build.Main.Version, Unknown),
		Commit:   cmp.Or(commit, revision(build), Unknown),
		Go:       runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
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
