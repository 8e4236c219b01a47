package repeat_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/edgehub-io/edgehub/cache/repeat"
)

// file is a table that counts what is written to it.
type file struct {
	values map[string][]byte
	puts   int
}

func (*file) Key(parts ...string) string { return strings.Join(parts, "|") }

func (f *file) Get(key string) ([]byte, bool) {
	value, ok := f.values[key]
	return value, ok
}

func (f *file) Put(key string, value []byte) {
	f.puts++
	f.values[key] = value
}

func (f *file) Delete(keys ...string) {
	for _, key := range keys {
		delete(f.values, key)
	}
}

func (f *file) Load(fn func(key string, value []byte) error) error {
	for key, value := range f.values {
		if fn(key, value) != nil {
			delete(f.values, key)
		}
	}
	return nil
}

func opened(t *testing.T, f *file) *repeat.Answers {
	t.Helper()
	a := repeat.New(repeat.Options{})
	if err := a.Load(f); err != nil {
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
		f := &file{values: map[string][]byte{}}
		a := opened(t, f)
		for _, step := range []struct {
			after time.Duration
			body  string
			puts  int
		}{{0, "v", 1}, {24*time.Hour - time.Second, "v", 1}, {time.Second, "v", 2}, {0, "v", 2}, {0, "other", 3}} {
			time.Sleep(step.after)
			if keep(t, a, step.body); f.puts != step.puts {
				t.Errorf("%q %v later: written %d times, want %d", step.body, step.after, f.puts, step.puts)
			}
		}
		if got := answer(opened(t, f)); got != "other" {
			t.Error(got)
		}
	})
}

func TestAnswersAfterTheFileWasReplaced(t *testing.T) {
	f := &file{values: map[string][]byte{}}
	a := opened(t, f)
	keep(t, a, "v")
	clear(f.values)
	if got := answer(a); got != "none" {
		t.Errorf("without a file: %s", got)
	}
	keep(t, a, "v")
	if got := answer(opened(t, f)); got != "v" {
		t.Errorf("not written to the new file: %s", got)
	}
}

func TestWhatIsNoAnswerIsDropped(t *testing.T) {
	f := &file{values: map[string][]byte{
		"a": nil, "b": []byte("\n"), "c": []byte("{}\n"), "d": []byte(`{"policy":"path"}`), "e": []byte(`{"policy":"later"}` + "\nx"), "f": []byte(`{"used":"x"}` + "\n"), "clock": []byte("noon"),
	}}
	a := opened(t, f)
	if len(f.values) != 0 {
		t.Errorf("left: %q", f.values)
	}
	if keep(t, a, "v"); answer(a) != "v" {
		t.Error("nothing can be kept")
	}
}
