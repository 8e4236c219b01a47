package cache

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/edgehub-io/edgehub/test/internal/audit"
)

// auditRules leave out what the control plane asks by itself.
const auditRules = `
  - level: None
    users: [admin, "system:apiserver", "system:kube-scheduler", "system:kube-controller-manager"]
  - level: None
    userGroups: ["system:serviceaccounts:kube-system"]
  - level: Metadata
`

// auditLog is the apiserver's own record, as a test reads it.
type auditLog struct{ *audit.Log }

// mark is where the record ends now.
func (l auditLog) mark(t *testing.T) int64 {
	t.Helper()
	mark, err := l.Mark()
	if err != nil {
		t.Fatal(err)
	}
	return mark
}

// since returns the requests of a user after a mark.
func (l auditLog) since(t *testing.T, mark int64, user string) []audit.Request {
	t.Helper()
	all, err := l.Since(mark)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(r audit.Request) bool { return r.User.Username != user })
}

// wholeReads counts by query the requests that make the apiserver send a whole
// collection: LISTs, first pages only, and watches that begin with all there is. LISTs
// of one object, with which the hub finds out at which version the apiserver is, are
// none; the second result counts them.
func wholeReads(requests []audit.Request) (reads map[string]int, versionChecks int) {
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
