package keyring

import (
	"net"
	"net/url"
	"path"
	"strings"
)

// Docker Hub's names.
const (
	hub      = "docker.io"       // in images
	hubIndex = "index.docker.io" // in configurations, where docker login writes it with /v1/
)

// patternOf returns the pattern of a registry of a Docker configuration, without its scheme and API
// version. It returns false if the registry can match no image.
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

// parse parses host, port and path of a pattern or a repository. It returns nil if they are invalid.
func parse(name string) *url.URL {
	u, err := url.Parse("https://" + name)
	if err != nil {
		return nil
	}
	return u
}

// matches compares the host label by label, so that * matches within one label; the port, which must be
// equal or missing in both; and the path as a prefix, even within a word.
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

// onHub reports whether the kubelet treats an image as Docker Hub's: the kubelet does so for any host
// without a dot and a port, even localhost.
func onHub(target *url.URL) bool {
	return target.Host == hub || target.Host != "" && !strings.ContainsAny(target.Host, ".:")
}
