package keyring

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

func TestCredentialsOfASecret(t *testing.T) {
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	tests := map[string]struct {
		credential string // JSON
		want       engineapi.Credential
	}{
		"user and password":                            {`{"username":"me","password":"pw"}`, engineapi.Credential{Username: "me", Password: "pw"}},
		"auth":                                         {`{"auth":"` + b64("me:pw") + `"}`, engineapi.Credential{Username: "me", Password: "pw"}},
		"auth without padding":                         {`{"auth":"` + base64.RawStdEncoding.EncodeToString([]byte("me:pwd12")) + `"}`, engineapi.Credential{Username: "me", Password: "pwd12"}},
		"auth with a line feed inside":                 {`{"auth":"` + b64("me:pw")[:4] + `\n` + b64("me:pw")[4:] + `"}`, engineapi.Credential{Username: "me", Password: "pw"}},
		"auth with a line feed at the end":             {`{"auth":"` + b64("me:pw12") + `\n"}`, engineapi.Credential{Username: "me", Password: "pw12"}},
		"auth takes precedence over user and password": {`{"username":"x","password":"y","auth":"` + b64("me:pw") + `"}`, engineapi.Credential{Username: "me", Password: "pw"}},
		"colons in the password":                       {`{"auth":"` + b64("me:p:w:") + `"}`, engineapi.Credential{Username: "me", Password: "p:w:"}},
		"no password":                                  {`{"auth":"` + b64("me:") + `"}`, engineapi.Credential{Username: "me"}},
		"no user":                                      {`{"auth":"` + b64(":pw") + `"}`, engineapi.Credential{Password: "pw"}},
		"an identity token":                            {`{"auth":"` + b64("0000:") + `","identitytoken":"tok"}`, engineapi.Credential{Username: "0000", IdentityToken: "tok"}},
		"an identity token of another type is ignored": {`{"username":"me","password":"pw","identitytoken":7}`, engineapi.Credential{Username: "me", Password: "pw"}},
		"unknown fields are ignored":                   {`{"username":"me","password":"pw","email":"me@example.com","x":[1]}`, engineapi.Credential{Username: "me", Password: "pw"}},
		"an empty credential is anonymous":             {`{}`, engineapi.Credential{}},
		"null is anonymous":                            {`null`, engineapi.Credential{}},
		"field names are case-insensitive":             {`{"Username":"me","PASSWORD":"pw"}`, engineapi.Credential{Username: "me", Password: "pw"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.want.Source, tt.want.Namespace = "secret shop/regcred", "shop"
			auths := `{"r.example.com":` + tt.credential + `}`
			for _, s := range []*corev1.Secret{
				rawSecret("regcred", corev1.SecretTypeDockerConfigJson, corev1.DockerConfigJsonKey, `{"auths":`+auths+`}`),
				rawSecret("regcred", corev1.SecretTypeDockercfg, corev1.DockerConfigKey, auths),
			} {
				got := New(entriesOf(t, s)...).Lookup("r.example.com/app")
				if !slices.Equal(got, []engineapi.Credential{tt.want}) {
					t.Errorf("%s: got %#v, want %#v", s.Type, got, tt.want)
				}
			}
		})
	}
}

func TestSecretsThatCannotBeUsed(t *testing.T) {
	const (
		jsonType, jsonKey = corev1.SecretTypeDockerConfigJson, corev1.DockerConfigJsonKey
		cfgType, cfgKey   = corev1.SecretTypeDockercfg, corev1.DockerConfigKey
	)
	auths := func(credential string) string {
		return `{"auths":{"https://me:hunter2@r.example.com/v1/":` + credential + `}}`
	}
	noColon := base64.StdEncoding.EncodeToString([]byte("hunter2"))
	tests := map[string]struct {
		of           corev1.SecretType
		key, content string
		want         string // behind "secret shop/regcred: "
		entries      int
	}{
		"another type":              {corev1.SecretTypeOpaque, jsonKey, auths(`{}`), `its type is "Opaque": want kubernetes.io/dockerconfigjson or kubernetes.io/dockercfg`, 0},
		"no type":                   {"", jsonKey, auths(`{}`), `its type is "": want kubernetes.io/dockerconfigjson or kubernetes.io/dockercfg`, 0},
		"the key of the other type": {jsonType, cfgKey, auths(`{}`), `it has nothing under .dockerconfigjson`, 0},
		"nothing under the key":     {cfgType, cfgKey, ``, `it has nothing under .dockercfg`, 0},
		"no JSON":                   {jsonType, jsonKey, `hunter2`, `.dockerconfigjson: it is not JSON, from byte 1 on`, 0},
		"JSON that breaks off":      {jsonType, jsonKey, `{"auths":{"r":{"password":"hunter2`, `.dockerconfigjson: it is not JSON, from byte 34 on`, 0},
		"JSON with more behind":     {jsonType, jsonKey, auths(`{}`) + `hunter2`, `.dockerconfigjson: it is not JSON, from byte 54 on`, 0},
		"a list":                    {cfgType, cfgKey, `["hunter2"]`, `.dockercfg: it is a JSON array: want an object`, 0},
		"a number":                  {cfgType, cfgKey, `4711`, `.dockercfg: it is a JSON number: want an object`, 0},
		"auths are a string":        {jsonType, jsonKey, `{"auths":"hunter2"}`, `.dockerconfigjson: auths is a JSON string: want an object`, 0},
		"no auths":                  {jsonType, jsonKey, `{}`, `it names no registry`, 0},
		"the form of the other type": {jsonType, jsonKey, `{"r.example.com":{"username":"me","password":"hunter2"}}`,
			`it names no registry`, 0},
		"null":                                         {cfgType, cfgKey, `null`, `it names no registry`, 0},
		"a credential is a string":                     {jsonType, jsonKey, auths(`"hunter2"`), `.dockerconfigjson: credential for "r.example.com": it is a JSON string: want an object`, 0},
		"a password that is a number":                  {jsonType, jsonKey, auths(`{"password":4711}`), `.dockerconfigjson: credential for "r.example.com": password is a JSON number: want a string`, 0},
		"auth that is not base64":                      {jsonType, jsonKey, auths(`{"auth":"hunter2!"}`), `.dockerconfigjson: credential for "r.example.com": auth is not base64`, 0},
		"auth with space around it":                    {jsonType, jsonKey, auths(`{"auth":" bWU6aHVudGVyMg== "}`), `.dockerconfigjson: credential for "r.example.com": auth is not base64`, 0},
		"auth without a colon":                         {jsonType, jsonKey, auths(`{"auth":"` + noColon + `"}`), `.dockerconfigjson: credential for "r.example.com": auth is not USER:PASSWORD in base64`, 0},
		"an invalid registry is skipped":               {cfgType, cfgKey, `{"r:hunter2":{},"ok.example.com":{}}`, `.dockercfg: 1 of 2 registries have a name that is no host name or URL, and are passed over`, 1},
		"a registry without a name":                    {jsonType, jsonKey, `{"auths":{"":{}}}`, `.dockerconfigjson: 1 of 1 registries have a name that is no host name or URL, and are passed over`, 0},
		"an invalid credential of an invalid registry": {cfgType, cfgKey, `{"r:hunter2":{"auth":"!"}}`, `.dockercfg: credential for a registry whose name is no host name or URL: auth is not base64`, 0},
		"one wrong credential of many":                 {cfgType, cfgKey, `{"a.example.com":{},"b.example.com":{"auth":"!"}}`, `.dockercfg: credential for "b.example.com": auth is not base64`, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			entries, err := FromSecret(rawSecret("regcred", tt.of, tt.key, tt.content))
			if want := "secret shop/regcred: " + tt.want; err == nil || err.Error() != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
			if len(entries) != tt.entries {
				t.Errorf("got %d entries, want %d", len(entries), tt.entries)
			}
		})
	}
}

// write puts a file with one user into a new folder and returns its path.
func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFiles(t *testing.T) {
	const auths = `{"r.example.com":{"username":"me","password":"hunter2"}}`
	tests := map[string]struct {
		name, content string
		want          string // the user
		wrong         string // in the error
	}{
		"config.json":                            {"config.json", `{"auths":` + auths + `}`, "me", ""},
		".dockercfg":                             {".dockercfg", auths, "me", ""},
		"any other file name has the new format": {"credentials", `{"auths":` + auths + `}`, "me", ""},
		"the old format under the new name":      {"config.json", auths, "", ""},
		"only credential helpers":                {"config.json", `{"credsStore":"secretservice","credHelpers":{"r.example.com":"x"}}`, "", ""},
		"an empty file":                          {"config.json", ``, "", "it is not JSON"},
		"a wrong credential":                     {"config.json", `{"auths":{"r.example.com":{"auth":"hunter2"}}}`, "", `credential for "r.example.com": auth is not`},
		"an invalid registry and a valid one":    {".dockercfg", `{"r:x":{},` + auths[1:], "me", "1 of 2 registries"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := write(t, tt.name, tt.content)
			entries, err := FromFile(path)
			if got := users(New(entries).Lookup("r.example.com/app")); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if (tt.wrong == "") != (err == nil) || err != nil && !strings.HasPrefix(err.Error(), "file "+path+": "+tt.wrong) {
				t.Errorf("got error %v, want one with %q", err, tt.wrong)
			}
		})
	}
}

func TestTheFirstFileThatCanBeUsedIsTheOnlyOne(t *testing.T) {
	user := func(name string) string {
		return `{"auths":{"r.example.com":{"username":"` + name + `","password":"p"}}}`
	}
	missing := filepath.Join(t.TempDir(), "config.json")
	first, second := write(t, "config.json", user("first")), write(t, "config.json", user("second"))
	broken := write(t, "config.json", `{`)
	partly := write(t, "config.json", `{"auths":{"r:x":{},"r.example.com":{"username":"first"}}}`)
	without := write(t, "config.json", `{}`)
	tests := map[string]struct {
		files []string
		want  string
		wrong bool
	}{
		"the first of two files is used":                        {[]string{first, second}, "first", false},
		"a missing file is skipped":                             {[]string{missing, second}, "second", false},
		"an invalid file is skipped with an error":              {[]string{broken, second}, "second", true},
		"an invalid file after a valid one is not read":         {[]string{first, broken}, "first", false},
		"a file without registries is used":                     {[]string{without, second}, "", false},
		"a file with an invalid registry is used with an error": {[]string{partly, second}, "first", true},
		"a folder":              {[]string{filepath.Dir(missing), second}, "second", true},
		"all files are missing": {[]string{missing}, "", false},
		"all files are invalid": {[]string{broken, missing}, "", true},
		"no files are given":    {nil, "", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			entries, err := FirstOf(tt.files)
			if got := users(New(entries).Lookup("r.example.com/app")); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if (err != nil) != tt.wrong {
				t.Errorf("got error %v, want one: %t", err, tt.wrong)
			}
		})
	}
}

func TestFilesOfANode(t *testing.T) {
	t.Setenv("HOME", "/root")
	want := []string{
		"/var/lib/kubelet/config.json", "/config.json", "/root/.docker/config.json", "/.docker/config.json",
		"/var/lib/kubelet/.dockercfg", "/.dockercfg", "/root/.dockercfg",
	}
	if got := NodeFiles("/var/lib/kubelet"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	t.Setenv("HOME", "")
	want = []string{"/var/lib/kubelet/config.json", "/config.json", "/.docker/config.json", "/var/lib/kubelet/.dockercfg", "/.dockercfg"}
	if got := NodeFiles("/var/lib/kubelet"); !slices.Equal(got, want) {
		t.Errorf("without a home: got %q, want %q", got, want)
	}
}
