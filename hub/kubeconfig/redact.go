package kubeconfig

import (
	"errors"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// redacted stands where a secret was.
const redacted = "[redacted]"

// quoted finds what a parser quotes of the text that it could not read.
var quoted = regexp.MustCompile("`[^`]*`|\"[^\"]*\"|'[^']*'")

// redactQuotes is err without what it quotes of a file with secrets in it: a token
// that begins with an asterisk is "unknown anchor 'TOKEN'" to a YAML parser.
func redactQuotes(err error) error {
	return replaceText(err, quoted.ReplaceAllLiteralString(err.Error(), redacted))
}

// redactSecrets is err without the secrets of a kubeconfig, which client-go
// repeats where it does not like them: a proxy's URL, a key in place of its path.
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

// replaceText is err if text is what it says, and else an error that says text: what
// was wrapped would say it all the same.
func replaceText(err error, text string) error {
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}

// redactUser is an address, which may be none, without what stands before its host
// and behind its path, where passwords and tokens are written.
func redactUser(address string) string {
	address, _, _ = strings.Cut(address, "?")
	if at := strings.LastIndex(address, "@"); at >= 0 {
		scheme, _, ok := strings.Cut(address[:at], "://")
		if ok {
			return scheme + "://" + redacted + address[at:]
		}
		return redacted + address[at:]
	}
	return address
}
