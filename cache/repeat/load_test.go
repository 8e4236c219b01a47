package repeat_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/edgehub-io/edgehub/cache/identity"
	wal "github.com/edgehub-io/edgehub/cache/log"
	"github.com/edgehub-io/edgehub/cache/quota"
	"github.com/edgehub-io/edgehub/cache/repeat"
	"github.com/edgehub-io/edgehub/cache/view"
)

// noViews is a State of a log that has only tables of its own.
type noViews struct{}

func (noViews) Tables() []string       { return nil }
func (noViews) Rows(string) []wal.Row  { return nil }
func (noViews) Apply(wal.Change)       {}
func (noViews) Lost(error)             {}
func (noViews) GivenUp(string)         {}
func (noViews) Damaged(wal.Sum, error) {}
func (noViews) IsEmpty() bool          { return true }

// process is one in which the file is opened late, after a func, and closed at its end. It returns how many rows are left.
func process(t *testing.T, dir string, before, after func(a *repeat.Answers)) (rows int) {
	t.Helper()
	log, err := wal.New(dir, wal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	table := log.Table("answers")
	a := repeat.New(repeat.Options{
		TTL: 2 * time.Hour, Denial: func() string { return "never asked" }, Logger: slog.New(slog.DiscardHandler),
		Upstream: apiserver{}, AsNode: func(ctx context.Context) context.Context { return ctx },
		Users: identity.New(identity.Options{}), Views: view.New(view.Options{}),
	})
	load := func() {
		if err := a.Load(table); err != nil {
			t.Fatal(err)
		}
	}
	load()
	before(a)
	if err := log.Open(noViews{}); err != nil {
		t.Fatal(err)
	}
	load()
	after(a)
	rows = len(table.Keys())
	if err := errors.Join(log.Flush(), log.Close()); err != nil {
		t.Fatal(err)
	}
	return rows
}

// apiserver allows everything.
type apiserver struct{}

func (apiserver) RoundTrip(*http.Request) (*http.Response, error) {
	_, yes := access("anybody")
	return &http.Response{StatusCode: yes.Code, Header: yes.Header, Body: io.NopCloser(bytes.NewReader(yes.Body))}, nil
}

func TestAnswersOfAFileThatIsOpenedLate(t *testing.T) {
	nothing := func(*repeat.Answers) {}
	keeps := func(body string) func(*repeat.Answers) { return func(a *repeat.Answers) { keep(t, a, body) } }
	answers := func(want string) func(*repeat.Answers) {
		return func(a *repeat.Answers) {
			if got := answer(a); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
	}
	dir := t.TempDir()
	for _, step := range []struct {
		name          string
		before, after func(*repeat.Answers)
	}{
		{"a new file", keeps("first"), answers("first")},
		{"a file that is read", nothing, answers("first")},
		{"a file that is read after something was kept, which is asked for again", keeps("since the start"), answers("first")},
		{"what is kept then", nothing, keeps("later")},
		{"a restart", nothing, answers("later")},
	} {
		if rows := process(t, dir, step.before, step.after); rows != 1 {
			t.Errorf("%s: %d rows are left", step.name, rows)
		}
	}
}

// access is a SubjectAccessReview of a user, and a yes.
func access(user string) (*repeat.Request, *repeat.Response) {
	const review = `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":%q}%s}`
	r := httptest.NewRequest(http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", http.NoBody)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json")
	q := &repeat.Request{
		HTTP: r, User: quota.Node, Body: func() ([]byte, error) { return fmt.Appendf(nil, review, user, ""), nil },
		Info: &request.RequestInfo{APIGroup: "authorization.k8s.io", APIVersion: "v1", Resource: "subjectaccessreviews"},
	}
	body := fmt.Appendf(nil, review, user, `,"status":{"allowed":true}`)
	return q, &repeat.Response{Code: http.StatusCreated, Header: r.Header, Body: body}
}

func allowed(t *testing.T, a *repeat.Answers, user string) bool {
	t.Helper()
	asked, _ := access(user)
	res, err := a.Answer(asked)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(res.Body), `"allowed":true`)
}

func allow(t *testing.T, a *repeat.Answers, user string) {
	t.Helper()
	if err := a.Keep(access(user)); err != nil {
		t.Fatal(err)
	}
	if !allowed(t, a, user) {
		t.Fatal("what was kept is not repeated")
	}
}

// A device that boots with the clock of its last start does not let in longer who was let in then, also if it has let in others until the
// file is open.
func TestTheClockOfAFileThatIsOpenedLateCounts(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		process(t, dir, func(*repeat.Answers) {}, func(a *repeat.Answers) {
			allow(t, a, "adam")
			time.Sleep(110 * time.Minute)
			allowed(t, a, "adam")
		})
	})
	synctest.Test(t, func(t *testing.T) { // the clock is back where it was
		process(t, dir, func(a *repeat.Answers) { allow(t, a, "eve") }, func(a *repeat.Answers) {
			if !allowed(t, a, "adam") {
				t.Error("what was allowed 110 minutes ago is not repeated")
			}
			time.Sleep(11 * time.Minute)
			if allowed(t, a, "adam") {
				t.Error("what was allowed more than two hours ago is repeated")
			}
		})
	})
}

// What cannot be asked for again is forgotten.
func TestReviewsAreAskedForAgainAfterANewFileWasOpenedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		process(t, t.TempDir(), func(a *repeat.Answers) { allow(t, a, "adam") }, func(a *repeat.Answers) {
			ctx, cancel := context.WithTimeout(t.Context(), 90*time.Minute)
			defer cancel()
			a.Confirm(ctx)
			if !allowed(t, a, "adam") {
				t.Error("what is allowed all the time is forgotten")
			}
		})
	})
}
