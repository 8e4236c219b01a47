package proxy

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// A query that cannot be read is not logged: some put tokens into theirs.
func TestQueriesAreNotLogged(t *testing.T) {
	var log bytes.Buffer
	klog.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log), textlogger.Verbosity(10))))
	defer klog.ClearLogger()
	p := newProxy(nil)
	const path = "/api/v1/pods?access_token=planted&"
	tests := map[string]struct{ query, verb, name string }{
		"a limit that is no number":        {"limit=x", "list", ""},
		"a timeout that is no number":      {"timeoutSeconds=x&watch=1", "watch", ""},
		"a selector that is none":          {"fieldSelector=!&watch=true", "watch", ""},
		"a label selector that is none":    {"labelSelector=!!", "list", ""},
		"a watch that is no word":          {"watch=perhaps", "watch", ""},
		"no watch":                         {"watch=false", "list", ""},
		"an escape that is none":           {"watch=1&x=%zz", "watch", ""},
		"the name of one object":           {"fieldSelector=metadata.name%3Da", "list", "a"},
		"a name beside an unread argument": {"fieldSelector=metadata.name%3Da&limit=x", "list", "a"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			info, err := p.requestInfo(httptest.NewRequest(http.MethodGet, path+tt.query, nil))
			if err != nil {
				t.Fatal(err)
			}
			if info.Verb != tt.verb || info.Name != tt.name {
				t.Errorf("%s of %q, want %s of %q", info.Verb, info.Name, tt.verb, tt.name)
			}
		})
	}
	if strings.Contains(log.String(), "planted") {
		t.Errorf("logged: %s", log.String())
	}
}
