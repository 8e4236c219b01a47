package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

func TestTheFoldersThatCRIReads(t *testing.T) {
	for name, tt := range map[string]struct {
		path      string
		local     *bool
		want      string
		uncertain bool
	}{
		"2.0, one folder":                       {"/a", nil, "/a", false},
		"2.0, several":                          {"/a:/b", nil, "/a:/b", false},
		"none, which is the default or is none": {"", nil, defaultHosts, true},
		"the transfer service, one folder":      {"/a", new(false), "/a", false},
		"the transfer service, several":         {"/a:/b", new(false), "/a:/b", true},
		"not the transfer service, several":     {"/a:/b", new(true), "/a:/b", false},
	} {
		t.Run(name, func(t *testing.T) {
			var c fileConfig
			if r, _ := c.registry(); r != nil {
				t.Errorf("a configuration without CRI has %+v", r)
			}
			c.Plugins.Images = &struct {
				Registry registryConfig `toml:"registry"`
				Local    *bool          `toml:"use_local_image_pull"`
			}{registryConfig{ConfigPath: tt.path}, tt.local}
			if r, uncertain := c.registry(); r.ConfigPath != tt.want || uncertain != tt.uncertain {
				t.Errorf("%q, uncertain: %t", r.ConfigPath, uncertain)
			}
		})
	}
}

func TestSettingsOfAnotherResolverAreRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		config  string
		refused string // the registries, of those that are asked for
		says    string
	}{
		"mirrors":                   {`{"registry":{"mirrors":{"docker.io":{"endpoint":["http://m"]}}}}`, "docker.io", "registry.mirrors for docker.io"},
		"mirrors of all":            {`{"registry":{"mirrors":{"*":{"endpoint":["http://m"]}}}}`, "docker.io h", "registry.mirrors for "},
		"TLS":                       {`{"registry":{"configs":{"h":{"auth":null,"tls":{"caFile":"/ca"}}}}}`, "h", "registry.configs.tls for h"},
		"TLS of Docker Hub":         {`{"registry":{"configs":{"registry-1.docker.io":{"tls":{"caFile":"/ca"}}}}}`, "docker.io", "registry.configs.tls for docker.io"},
		"auth beside config_path":   {`{"registry":{"configPath":"/a","configs":{"h":{"auth":{"password":"hunter2"},"tls":null}}}}`, "", ""},
		"auths":                     {`{"registry":{"auths":{"https://h":{"auth":"hunter2"}}}}`, "", ""},
		"nothing that is not known": {`{"registry":{"configPath":"/a","mirrors":{},"configs":null,"headers":{"X":["1"]}}}`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var refused []string
			for _, host := range []string{"docker.io", "h"} {
				err := readConfig(tt.config).Registry.check(host)
				if err == nil {
					continue
				}
				refused = append(refused, host)
				if !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "hunter2") {
					t.Error(err)
				}
			}
			if got := strings.Join(refused, " "); got != tt.refused {
				t.Errorf("refused are %q, want %q", got, tt.refused)
			}
		})
	}
}

func TestCredentialsOfContainerdsConfiguration(t *testing.T) {
	ofPod := []engineapi.Credential{{Username: "pod"}}
	for name, tt := range map[string]struct {
		config string
		ofPods []engineapi.Credential
		want   string // for requests to the registry h
		fails  bool
	}{
		"a password":                 {`"configs":{"h":{"auth":{"username":"me","password":"hunter2"}}}`, nil, "me hunter2 ", false},
		"in base64":                  {`"configs":{"h":{"auth":{"auth":"bWU6aHVudGVyMg=="}}}`, nil, "me hunter2 ", false},
		"a token":                    {`"configs":{"h":{"auth":{"identitytoken":"hunter2"}}}`, nil, "  hunter2", false},
		"by URL, which counts more":  {`"configs":{"h":{"auth":{"username":"you"}}},"auths":{"https://h/v2":{"username":"me"}}`, nil, "me  ", false},
		"of another registry":        {`"configs":{"other":{"auth":{"username":"me"}}}`, nil, "  ", false},
		"none":                       {`"configs":{"h":{"auth":{}}}`, nil, "  ", false},
		"not base64":                 {`"configs":{"h":{"auth":{"auth":"hunter2?"}}}`, nil, "", true},
		"no password in it":          {`"configs":{"h":{"auth":{"auth":"aHVudGVyMg=="}}}`, nil, "", true},
		"not needed":                 {`"configs":{"h":{"auth":{"auth":"hunter2?"}}}`, ofPod, "  ", false},
		"wrong for another registry": {`"configs":{"other":{"auth":{"auth":"hunter2?"}}}`, nil, "  ", false},
	} {
		t.Run(name, func(t *testing.T) {
			said := readConfig(`{"registry":{` + tt.config + `}}`).Registry
			if text := fmt.Sprintf("%v %+v %#v", said.Configs["h"].Auth, *said, said.Auths); strings.Contains(text, "hunter2") {
				t.Errorf("printed it is %s", text)
			}
			got, err := (&settings{auths: said.hostAuths()}).credentials("h", tt.ofPods)
			if (err != nil) != tt.fails || err != nil && (strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), " h ")) {
				t.Fatal(err)
			}
			if c := got.OfHosts["h"]; err == nil && c.Username+" "+c.Password+" "+c.IdentityToken != tt.want {
				t.Errorf("got %s, %s and %s", c.Username, c.Password, c.IdentityToken)
			}
		})
	}
}

func TestAProcessThatHasEndedIsTriedAgain(t *testing.T) {
	if err := unknown(fmt.Errorf("open /proc/1/environ: %w", fs.ErrNotExist)); !errdefs.IsUnavailable(err) {
		t.Error(err)
	}
	if err := unknown(errors.New("another reason")); errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "--registry-config-dir") {
		t.Error(err)
	}
}

func TestTheHubsNameIsSentBesideCRIsHeaders(t *testing.T) {
	e := &Engine{opts: Options{UserAgent: "edgehub"}}
	if h := e.header(http.Header{"X-Site": {"7"}}); h.Get("User-Agent") != "edgehub" || h.Get("X-Site") != "7" {
		t.Error(h)
	}
}
