package keyring

import (
	"net"
	"net/url"
	"path"
	"strings"
)

// Docker Hub's names.
const (
	hub      = "docker.io"       // that of its images
	hubIndex = "index.docker.io" // that which docker login writes down, with /v1/ behind it
)

// patternOf reads a registry as it stands in a docker configuration. A scheme and
// the API's version say nothing about which images are meant. It returns false for
// what can match nothing.
func patternOf(registry string) (pattern string, ok bool) {
	if !strings.HasPrefix(registry, "https://") && !strings.HasPrefix(registry, "http://") {
		registry = "https://" + registry
	}
	u, err := url.Parse(registry)
	if err != nil || u.Host == "" {
		return "", false
	}
	p := u.Path
	if strings.HasPrefix(p, "/v1/") || strings.HasPrefix(p, "/v2/") {
		p = p[len("/v1"):]
	}
	if p == "/" {
		p = ""
	}
	pattern = u.Host + p
	return pattern, parse(pattern) != nil
}

// parse reads host, port and path of a pattern or a repository, and returns nil if
// there are none.
func parse(name string) *url.URL {
	u, err := url.Parse("https://" + name)
	if err != nil {
		return nil
	}
	return u
}

// matches compares the host label by label, so that * is one label; the port
// exactly, so that none is none; and the path as a prefix, also in the middle of a
// word.
func (e *entry) matches(target *url.URL) bool {
	globs, globPort := split(e.parsed.Host)
	labels, port := split(target.Host)
	if globPort != port || len(globs) != len(labels) || !strings.HasPrefix(target.Path, e.parsed.Path) {
		return false
	}
	for i, glob := range globs {
		if matched, err := path.Match(glob, labels[i]); err != nil || !matched {
			return false
		}
	}
	return true
}

func split(hostPort string) (labels []string, port string) {
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil {
		host, port = hostPort, ""
	}
	return strings.Split(host, "."), port
}

// onHub reports whether kubelet takes an image for one of Docker Hub, by its host. It
// does so for any host without dot and port, localhost too.
func onHub(target *url.URL) bool {
	return target.Host == hub || target.Host != "" && !strings.ContainsAny(target.Host, ".:")
}
