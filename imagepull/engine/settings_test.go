package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
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
	for name, config := range map[string]string{
		"mirrors": `{"registry":{"mirrors":{"docker.io":{"endpoint":["http://m"]}}}}`,
		"configs": `{"registry":{"configPath":"/a","configs":{"h":{"auth":{"password":"hunter2"}}}}}`,
		"auths":   `{"registry":{"auths":{"https://h":{"auth":"hunter2"}}}}`,
	} {
		err := readConfig(config).Registry.check()
		if err == nil || !strings.Contains(err.Error(), "registry."+name) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := readConfig(`{"registry":{"configPath":"/a","mirrors":{},"configs":null,"headers":{"X":["1"]}}}`).Registry.check(); err != nil {
		t.Error(err)
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
