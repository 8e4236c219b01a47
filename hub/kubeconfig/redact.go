package kubeconfig

import (
	"errors"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// redacted replaces a secret.
const redacted = "[redacted]"

// quoted matches what a parser quotes from the text that it could not parse.
var quoted = regexp.MustCompile("`[^`]*`|\"[^\"]*\"|'[^']*'")

// redactQuotes returns err without its quotes from a file with secrets: a YAML parser reports a
// token that begins with an asterisk as "unknown anchor 'TOKEN'".
func redactQuotes(err error) error {
	return replaceText(err, quoted.ReplaceAllLiteralString(err.Error(), redacted))
}

// redactSecrets returns err without the secrets of a kubeconfig that client-go repeats in errors:
// the URL of a proxy, or a key in place of its path.
func redactSecrets(err error, file *clientcmdapi.Config) error {
	text := err.Error()
	hide := func(secrets ...string) {
		for _, s := range secrets {
			if s != "" {
				text = strings.ReplaceAll(text, s, redacted)
			}
		}
	}
	for _, cluster := range file.Clusters {
		for _, raw := range []string{cluster.ProxyURL, cluster.Server} {
			if raw == redactUser(raw) {
				continue
			}
			hide(raw, strings.Trim(strconv.Quote(raw), `"`))
			if u, err := url.Parse(raw); err == nil && u.User != nil {
				hide(u.String(), u.User.String())
			}
		}
	}
	for _, user := range file.AuthInfos {
		hide(user.Token, user.Password, string(user.ClientKeyData))
		if strings.Contains(user.ClientKey, "PRIVATE KEY") {
			hide(user.ClientKey)
		}
	}
	return replaceText(err, text)
}

// replaceText returns err if its text is text, and otherwise a new error with that text. It
// does not wrap err, which would still contain the secret.
func replaceText(err error, text string) error {
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}

// redactUser returns an address, which may be invalid, without user information and query. Those
// may contain passwords and tokens.
func redactUser(address string) string {
	address, _, _ = strings.Cut(address, "?")
	at := strings.LastIndex(address, "@")
	if at < 0 {
		return address
	}
	if scheme, _, ok := strings.Cut(address[:at], "://"); ok {
		return scheme + "://" + redacted + address[at:]
	}
	return redacted + address[at:]
}
