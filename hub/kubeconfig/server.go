package kubeconfig

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// ParseServer reads one apiserver's address: https://HOST[:PORT], or HOST:PORT.
func ParseServer(word string) (*url.URL, error) {
	raw := word
	word = redactUser(word)
	if !strings.Contains(raw, "://") {
		raw = "https://" + raw
	}
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" {
		return nil, fmt.Errorf("%q is no address: write https://HOST:PORT", word)
	}
	if u.Scheme != "https" {
		return nil, fmt.Errorf("%q: an apiserver is reached over https, not %s", word, u.Scheme)
	}
	if (u.Path != "" && u.Path != "/") || u.RawQuery != "" || u.User != nil {
		return nil, fmt.Errorf("%q: only https://HOST:PORT, with nothing behind the port", word)
	}
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), "443")
	} else if port, err := strconv.Atoi(u.Port()); err != nil || port < 1 || port > 65535 {
		return nil, fmt.Errorf("%q: %s is not a port from 1 to 65535", word, u.Port())
	}
	return &url.URL{Scheme: "https", Host: u.Host}, nil
}
