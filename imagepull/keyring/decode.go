package keyring

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// reader reads one of Docker's formats. It returns nil entries if content is invalid, and both entries
// and an error if it has skipped some. Its errors contain nothing of content except names of registries.
type reader func(content []byte, source string) (Entries, error)

func readConfigJSON(content []byte, source string) (Entries, error) {
	var config struct {
		Auths map[string]json.RawMessage `json:"auths"`
	}
	if err := json.Unmarshal(content, &config); err != nil {
		return nil, withoutContent(err)
	}
	return readAuths(config.Auths, source)
}

func readDockercfg(content []byte, source string) (Entries, error) {
	var auths map[string]json.RawMessage
	if err := json.Unmarshal(content, &auths); err != nil {
		return nil, withoutContent(err)
	}
	return readAuths(auths, source)
}

// readAuths reads auths in the order of their names, so that the result is always the same. As for the
// kubelet, one invalid credential invalidates all; an invalid registry is skipped.
func readAuths(auths map[string]json.RawMessage, source string) (Entries, error) {
	entries := make(Entries, 0, len(auths))
	passedOver := 0
	for _, registry := range slices.Sorted(maps.Keys(auths)) {
		pattern, ok := patternOf(registry)
		credential, err := readCredential(auths[registry])
		if err != nil {
			return nil, fmt.Errorf("credential for %s: %w", shown(pattern, ok), err)
		}
		if !ok {
			passedOver++
			continue
		}
		credential.Source = source
		entries = append(entries, entry{pattern: pattern, parsed: parse(pattern), credential: credential})
	}
	if passedOver > 0 {
		return entries, fmt.Errorf("%d of %d registries have a name that is no host name or URL, and are passed over", passedOver, len(auths))
	}
	return entries, nil
}

// shown formats a registry for an error. It shows only a pattern: a URL may have a password.
func shown(pattern string, ok bool) string {
	if !ok {
		return "a registry whose name is no host name or URL"
	}
	return fmt.Sprintf("%.200q", pattern)
}

func readCredential(content []byte) (engineapi.Credential, error) {
	var raw struct {
		Username      string `json:"username"`
		Password      string `json:"password"`
		Auth          string `json:"auth"`
		IdentityToken any    `json:"identitytoken"` // of any type, since the kubelet ignores it
	}
	if err := json.Unmarshal(content, &raw); err != nil {
		return engineapi.Credential{}, withoutContent(err)
	}
	c := engineapi.Credential{Username: raw.Username, Password: raw.Password}
	c.IdentityToken, _ = raw.IdentityToken.(string)
	if raw.Auth == "" {
		return c, nil
	}
	var err error
	c.Username, c.Password, err = decodeAuth(raw.Auth)
	return c, err
}

// decodeAuth decodes USER:PASSWORD, in base64 with or without padding.
func decodeAuth(auth string) (user, password string, err error) {
	encoding := base64.RawStdEncoding
	if strings.HasSuffix(strings.TrimSpace(auth), "=") {
		encoding = base64.StdEncoding
	}
	decoded, err := encoding.DecodeString(auth)
	if err != nil {
		return "", "", errors.New("auth is not base64")
	}
	user, password, ok := strings.Cut(string(decoded), ":")
	if !ok {
		return "", "", errors.New("auth is not USER:PASSWORD in base64")
	}
	return user, password, nil
}

// withoutContent describes an error of encoding/json without the parts of the JSON that it contains.
func withoutContent(err error) error {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("it is not JSON, from byte %d on", syntax.Offset)
	}
	if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		is, _, _ := strings.Cut(mismatch.Value, " ") // "number 1234"
		field := mismatch.Field                      // of our structs, not of the JSON
		if field == "" {
			field = "it"
		}
		return fmt.Errorf("%s is a JSON %s: want %s", field, is, cmp.Or(wanted[field], "a string"))
	}
	return errors.New("it is not JSON")
}

// wanted are the types of fields that are no strings.
var wanted = map[string]string{"it": "an object", "auths": "an object"}
