package cache

import (
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// audit is the apiserver's own record of who asked it for what: each request once,
// when it arrives.
type audit struct {
	policy, log string
}

// auditPolicy leaves out what the control plane asks by itself.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted, ResponseComplete, Panic]
rules:
  - level: None
    users: [admin, "system:apiserver", "system:kube-scheduler", "system:kube-controller-manager"]
  - level: None
    userGroups: ["system:serviceaccounts:kube-system"]
  - level: Metadata
`

func newAudit(dir string) (*audit, error) {
	a := &audit{policy: filepath.Join(dir, "policy.yaml"), log: filepath.Join(dir, "audit.log")}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return a, os.WriteFile(a.policy, []byte(auditPolicy), 0o644)
}

// args are the apiserver's flags.
func (a *audit) args() []string {
	return []string{
		"--audit-policy-file=" + a.policy,
		"--audit-log-path=" + a.log,
		"--audit-log-maxsize=10000", // MB: one file, whatever happens
	}
}

// mark is where the record ends now.
func (a *audit) mark(t *testing.T) int64 {
	t.Helper()
	info, err := os.Stat(a.log)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// auditedRequest is a request as the apiserver has seen it.
type auditedRequest struct {
	Verb       string `json:"verb"`
	RequestURI string `json:"requestURI"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
}

// since returns the requests of a user after a mark.
func (a *audit) since(t *testing.T, mark int64, user string) []auditedRequest {
	t.Helper()
	file, err := os.Open(a.log)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Seek(mark, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	var out []auditedRequest
	for decoder := json.NewDecoder(file); ; {
		var r auditedRequest
		err := decoder.Decode(&r)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // the rest is being written
			return out
		}
		if err != nil {
			t.Fatalf("read the audit log: %v", err)
		}
		if r.User.Username == user {
			out = append(out, r)
		}
	}
}

// wholeReads counts by query the requests that make the apiserver send a whole
// collection: LISTs, first pages only, and watches that begin with all there is. LISTs
// of one object, with which the hub finds out at which version the apiserver is, are
// none; the second result counts them.
func wholeReads(requests []auditedRequest) (reads map[string]int, versionChecks int) {
	reads = map[string]int{}
	for _, r := range requests {
		u, err := url.Parse(r.RequestURI)
		if err != nil {
			continue
		}
		q := u.Query()
		version := q.Get("resourceVersion")
		initial := q.Get("sendInitialEvents") == "true" || version == "" || version == "0"
		switch {
		case r.Verb == "list" && q.Get("limit") == "1":
			versionChecks++
		case r.Verb == "list" && q.Get("continue") == "", r.Verb == "watch" && initial:
			reads[strings.Join([]string{u.Path, q.Get("labelSelector"), q.Get("fieldSelector")}, "|")]++
		}
	}
	return reads, versionChecks
}
