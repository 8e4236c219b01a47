package repeat_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"

	wal "github.com/edgehub-io/edgehub/cache/log"
	"github.com/edgehub-io/edgehub/cache/repeat"
)

// newTable returns a table in memory.
func newTable(t *testing.T) *wal.Table {
	t.Helper()
	log, err := wal.New(t.TempDir(), wal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return log.Table("answers")
}

// content is all that a table has.
func content(table *wal.Table) (all string) {
	for _, key := range table.Keys() {
		value, _ := table.Get(key)
		all += key + string(value)
	}
	return all
}

func opened(t *testing.T, table *wal.Table) *repeat.Answers {
	t.Helper()
	a := repeat.New(repeat.Options{})
	if err := a.Load(table); err != nil {
		t.Fatal(err)
	}
	return a
}

// version is a GET of /version, and what an apiserver answers.
func version(body string) (*repeat.Request, *repeat.Response) {
	return &repeat.Request{HTTP: httptest.NewRequest(http.MethodGet, "/version", http.NoBody), Info: &request.RequestInfo{}, User: "u"},
		&repeat.Response{Code: http.StatusOK, Header: http.Header{}, Body: []byte(body)}
}

func keep(t *testing.T, a *repeat.Answers, body string) {
	t.Helper()
	if err := a.Keep(version(body)); err != nil {
		t.Fatal(err)
	}
}

// answer returns what is repeated, or "none".
func answer(a *repeat.Answers) string {
	asked, _ := version("")
	res, err := a.Answer(asked)
	if err != nil {
		return "none"
	}
	return string(res.Body)
}

func TestAnAnswerThatStaysTheSameIsWrittenRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable(t)
		a := opened(t, table)
		for _, step := range []struct {
			after   time.Duration
			body    string
			written bool
		}{{0, "v", true}, {24*time.Hour - time.Second, "v", false}, {time.Second, "v", true}, {0, "v", false}, {0, "other", true}} {
			time.Sleep(step.after)
			before := content(table)
			if keep(t, a, step.body); (content(table) != before) != step.written {
				t.Errorf("%q %v later: is it written? Want %v", step.body, step.after, step.written)
			}
		}
		if got := answer(opened(t, table)); got != "other" {
			t.Error(got)
		}
	})
}

func TestAnswersAfterTheFileWasReplaced(t *testing.T) {
	table := newTable(t)
	a := opened(t, table)
	keep(t, a, "v")
	table.Delete(table.Keys()...)
	if got := answer(a); got != "none" {
		t.Errorf("without a file: %s", got)
	}
	keep(t, a, "v")
	if got := answer(opened(t, table)); got != "v" {
		t.Errorf("not written to the new file: %s", got)
	}
}

func TestWhatIsNoAnswerIsDropped(t *testing.T) {
	table := newTable(t)
	for key, value := range map[string][]byte{
		"a": nil, "b": []byte("\n"), "c": []byte("{}\n"), "d": []byte(`{"policy":"path"}`), "e": []byte(`{"policy":"later"}` + "\nx"), "f": []byte(`{"used":"x"}` + "\n"), table.Key("clock"): []byte("noon"),
	} {
		table.Put(key, value)
	}
	a := opened(t, table)
	if left := table.Keys(); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
	if keep(t, a, "v"); answer(a) != "v" {
		t.Error("nothing can be kept")
	}
}
