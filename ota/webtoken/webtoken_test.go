package webtoken

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/ota/api"
)

// site is a hub's tokens, and what callers send to them.
type site struct {
	t *testing.T
	*Tokens
	file  string
	unset bool // the clock was not set yet
	logs  bytes.Buffer
}

func newSite(t *testing.T) *site {
	s := &site{t: t, file: filepath.Join(t.TempDir(), "tokens.json")}
	s.restart()
	return s
}

// restart starts again from the file, as after kill -9: nothing is written at the end.
func (s *site) restart() {
	plausible := func(time.Time) bool { return !s.unset }
	s.Tokens = Open(s.file, plausible, slog.New(slog.NewTextHandler(&s.logs, nil)))
}

func (s *site) code() string {
	s.t.Helper()
	w := httptest.NewRecorder()
	s.NewCode(w, httptest.NewRequest(http.MethodPost, api.WebCodes, http.NoBody))
	var code api.Code
	if err := json.Unmarshal(w.Body.Bytes(), &code); err != nil || w.Code != http.StatusOK || code.Code == "" {
		s.t.Fatalf("a code: %d %s", w.Code, w.Body)
	}
	return code.Code
}

// try exchanges a code, as a browser does.
func (s *site) try(code string) (int, string) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, api.WebTokens, strings.NewReader(fmt.Sprintf(`{"code":%q}`, code)))
	r.Header.Set("Origin", "http://127.0.0.1:10267")
	s.Exchange(w, r)
	var token api.Token
	_ = json.Unmarshal(w.Body.Bytes(), &token) // an error is a line of text
	if w.Code == http.StatusOK {
		return w.Code, token.Token
	}
	return w.Code, w.Body.String()
}

func (s *site) token() string {
	s.t.Helper()
	status, token := s.try(s.code())
	if status != http.StatusOK || token == "" {
		s.t.Fatalf("a token: %d %s", status, token)
	}
	return token
}

// changes returns the answer to a change by a browser.
func (s *site) changes(token string) int {
	r := httptest.NewRequest(http.MethodPost, "/openyurt.io/v1/namespaces/d/pods/p/upgrade", http.NoBody)
	r.Header.Set("Origin", "http://127.0.0.1:10267")
	r.Header.Set(api.TokenHeader, token)
	return s.guards(r).Code
}

func (s *site) guards(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.Guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
	return w
}

func (s *site) onDisk() string {
	s.t.Helper()
	content, err := os.ReadFile(s.file)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(content)
}

func TestACodeIsUsedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		code := s.code()
		if status, _ := s.try(code); status != http.StatusOK {
			t.Errorf("a fresh code got %d", status)
		}
		if status, line := s.try(code); status != http.StatusForbidden || line != "this code was used before, or is older than 10 minutes\n" {
			t.Errorf("the second time: %d %q", status, line)
		}
	})
}

func TestOfManyWhoUseACodeAtOnceOneGetsAToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		code := s.code()
		var got atomic.Int32
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if status, _ := s.try(code); status == http.StatusOK {
					got.Add(1)
				}
			})
		}
		all.Wait()
		if got.Load() != 1 {
			t.Errorf("%d got a token, want 1", got.Load())
		}
	})
}

func TestACodeExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		early, late := s.code(), s.code()
		time.Sleep(codeLife - time.Second)
		if status, _ := s.try(early); status != http.StatusOK {
			t.Errorf("after %v: %d", codeLife-time.Second, status)
		}
		time.Sleep(time.Second)
		if status, _ := s.try(late); status != http.StatusForbidden {
			t.Errorf("after %v: %d, want 403", codeLife, status)
		}
	})
}

func TestACodeEndsWithTheHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		code := s.code()
		s.restart()
		if status, _ := s.try(code); status != http.StatusForbidden {
			t.Errorf("after a restart: %d, want 403", status)
		}
	})
}

func TestTooManyCodesAreRefusedAndNoneIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		first := s.code()
		for range maxCodes - 1 {
			s.code()
		}
		w := httptest.NewRecorder()
		s.NewCode(w, httptest.NewRequest(http.MethodPost, api.WebCodes, http.NoBody))
		if w.Code != http.StatusServiceUnavailable || strings.Count(w.Body.String(), "\n") != 1 {
			t.Errorf("one code too many: %d %q", w.Code, w.Body)
		}
		if status, _ := s.try(first); status != http.StatusOK {
			t.Errorf("the first code got %d", status)
		}
		s.code()
		time.Sleep(codeLife)
		s.code() // those that have expired do not count
	})
}

func TestBrowsersNeedATokenAndProgramsNeedNone(t *testing.T) {
	s := newSite(t)
	good := s.token()
	tests := map[string]struct {
		method string
		header []string
		want   int
	}{
		"curl":                                   {http.MethodPost, nil, 200},
		"curl with a wrong token":                {http.MethodPost, []string{api.TokenHeader, "wrong"}, 200},
		"an old browser, without any of them":    {http.MethodPost, []string{"User-Agent", "Mozilla/5.0 (X11; Linux x86_64; rv:52.0) Gecko/20100101 Firefox/52.0"}, 401},
		"an old browser with the token":          {http.MethodPost, []string{"User-Agent", "Mozilla/5.0", api.TokenHeader, good}, 200},
		"a form without a header of its own":     {http.MethodPost, []string{"User-Agent", "Mozilla/5.0", "Content-Type", "text/plain"}, 401},
		"a browser reads":                        {http.MethodGet, []string{"Sec-Fetch-Site", "same-origin"}, 200},
		"a browser reads the head":               {http.MethodHead, []string{"Sec-Fetch-Site", "none"}, 200},
		"a browser's POST":                       {http.MethodPost, []string{"Origin", "http://127.0.0.1:10267"}, 401},
		"a browser's POST without an origin":     {http.MethodPost, []string{"Sec-Fetch-Mode", "cors"}, 401},
		"an empty Origin":                        {http.MethodPost, []string{"Origin", ""}, 401},
		"a browser's DELETE":                     {http.MethodDelete, []string{"Sec-Fetch-Site", "same-origin"}, 401},
		"a browser's PUT":                        {http.MethodPut, []string{"Sec-Fetch-Dest", "empty"}, 401},
		"a browser's PATCH":                      {http.MethodPatch, []string{"Sec-Fetch-User", "?1"}, 401},
		"a method that nobody knows":             {"UPGRADE", []string{"Origin", "x"}, 401},
		"a browser's POST with the token":        {http.MethodPost, []string{"Origin", "x", api.TokenHeader, good}, 200},
		"a browser's DELETE with the token":      {http.MethodDelete, []string{"Origin", "x", api.TokenHeader, good}, 200},
		"a token of the right length":            {http.MethodPost, []string{"Origin", "x", api.TokenHeader, strings.Repeat("A", len(good))}, 401},
		"a part of the token":                    {http.MethodPost, []string{"Origin", "x", api.TokenHeader, good[:len(good)-1]}, 401},
		"the token in other letters":             {http.MethodPost, []string{"Origin", "x", api.TokenHeader, strings.ToLower(good)}, 401},
		"the token as a bearer token":            {http.MethodPost, []string{"Origin", "x", "Authorization", "Bearer " + good}, 401},
		"the token as a cookie":                  {http.MethodPost, []string{"Origin", "x", "Cookie", api.TokenHeader + "=" + good}, 401},
		"what is on disk is no token":            {http.MethodPost, []string{"Origin", "x", api.TokenHeader, s.onDisk()[10:50]}, 401},
		"the second of two headers has the good": {http.MethodPost, []string{"Origin", "x", api.TokenHeader, "wrong", api.TokenHeader, good}, 401},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(tt.method, "/", http.NoBody)
			for i := 0; i < len(tt.header); i += 2 {
				r.Header.Add(tt.header[i], tt.header[i+1])
			}
			w := s.guards(r)
			if w.Code != tt.want || w.Code == 401 && w.Body.String() != "this browser may not change anything\n" {
				t.Errorf("got %d %q, want %d", w.Code, w.Body, tt.want)
			}
		})
	}
}

func TestABrowserGetsNoCode(t *testing.T) {
	s := newSite(t)
	for header, value := range map[string]string{"Origin": "x", "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty", "User-Agent": "Mozilla/5.0"} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, api.WebCodes, http.NoBody)
		r.Header.Set(header, value)
		r.Header.Set(api.TokenHeader, s.token()) // not even with a token
		s.NewCode(w, r)
		if w.Code != http.StatusForbidden {
			t.Errorf("with %s: %d %s", header, w.Code, w.Body)
		}
	}
}

func TestWhatIsNoCodeIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		for _, body := range []string{"", "{", "[]", `"x"`, `{"code":1}`, `{"code":"` + strings.Repeat("x", 2*maxBody) + `"}`} {
			w := httptest.NewRecorder()
			s.Exchange(w, httptest.NewRequest(http.MethodPost, api.WebTokens, strings.NewReader(body)))
			if w.Code != http.StatusBadRequest || strings.Count(w.Body.String(), "\n") != 1 {
				t.Errorf("%.20q: %d %q", body, w.Code, w.Body)
			}
		}
		if status, _ := s.try(""); status != http.StatusForbidden {
			t.Errorf("an empty code: %d", status)
		}
	})
}

func TestTokensSurviveKillMinus9(t *testing.T) {
	s := newSite(t)
	token := s.token()
	s.restart()
	if status := s.changes(token); status != http.StatusOK {
		t.Errorf("after a restart: %d", status)
	}
	if content := s.onDisk(); strings.Contains(content, token) || strings.Contains(content, token[:26]) {
		t.Errorf("the token is on disk: %s", content)
	}
	if info, err := os.Stat(s.file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v %v, want mode 0600", info.Mode(), err)
	}
	if logs := s.logs.String(); strings.Contains(logs, token) {
		t.Errorf("the token is in the log: %s", logs)
	}
}

func TestTokensExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		token := s.token()
		time.Sleep(tokenLife - time.Minute)
		if status := s.changes(token); status != http.StatusOK {
			t.Errorf("shortly before: %d", status)
		}
		time.Sleep(time.Minute)
		if status := s.changes(token); status != http.StatusUnauthorized {
			t.Errorf("after %v: %d, want 401", tokenLife, status)
		}
		if content := s.onDisk(); content != "null" {
			t.Errorf("it is still on disk: %s", content)
		}
	})
}

func TestTheOldestOfTooManyTokensGoes(t *testing.T) {
	s := newSite(t)
	var all []string
	for range maxTokens + 1 {
		all = append(all, s.token())
	}
	for _, restarted := range []bool{false, true} {
		if restarted {
			s.restart()
		}
		for i, token := range all {
			if status := s.changes(token); (status == http.StatusOK) != (i > 0) {
				t.Errorf("token %d of %d: %d, restarted: %v", i, len(all), status, restarted)
			}
		}
	}
}

// A node without a clock of its own starts in the past, and may be ahead until it asks the network.
func TestAWrongClockMakesNoTokenLastLonger(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "tokens.json")
	var token string
	synctest.Test(t, func(t *testing.T) { // each bubble begins at the same time
		time.Sleep(1000 * 24 * time.Hour) // a clock that is ahead
		s := &site{t: t, file: file}
		s.restart()
		token = s.token()
	})
	synctest.Test(t, func(t *testing.T) { // it is set right
		s := &site{t: t, file: file}
		s.restart()
		if status := s.changes(token); status != http.StatusOK {
			t.Errorf("it keeps its owner out: %d", status)
		}
		time.Sleep(tokenLife / 2)
		s.restart()
		time.Sleep(tokenLife / 2)
		if status := s.changes(token); status != http.StatusUnauthorized {
			t.Errorf("after %v, with a restart in between: %d, want 401", tokenLife, status)
		}
	})
	synctest.Test(t, func(t *testing.T) { // it is set back
		s := &site{t: t, file: file}
		s.restart()
		if status := s.changes(token); status != http.StatusUnauthorized {
			t.Errorf("a token that has expired is good again once the clock is set back: %d, want 401", status)
		}
	})
}

// A node without a clock battery boots in 1970, until its clock is set. A token of before may be of yesterday.
func TestAClockThatIsNotSetYet(t *testing.T) {
	const now = 1000 * 24 * time.Hour // after the time at which each bubble begins
	file := filepath.Join(t.TempDir(), "tokens.json")
	var old string
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(now)
		s := &site{t: t, file: file}
		s.restart()
		old = s.token()
	})
	synctest.Test(t, func(t *testing.T) {
		s := &site{t: t, file: file, unset: true}
		s.restart()
		if status := s.changes(old); status != http.StatusUnauthorized {
			t.Errorf("before the clock is set: %d, want 401", status)
		}
		fresh := s.token()
		time.Sleep(tokenLife - time.Hour)
		if status := s.changes(fresh); status != http.StatusOK {
			t.Errorf("a token that was given since: %d", status)
		}
		time.Sleep(time.Hour)
		if status := s.changes(fresh); status != http.StatusUnauthorized {
			t.Errorf("after %v: %d, want 401", tokenLife, status)
		}
		time.Sleep(now - tokenLife + time.Hour)
		s.unset = false
		if status := s.changes(old); status != http.StatusOK {
			t.Errorf("once it is set: %d", status)
		}
		time.Sleep(tokenLife)
		if status := s.changes(old); status != http.StatusUnauthorized {
			t.Errorf("%v later: %d, want 401", tokenLife, status)
		}
	})
}

func TestADamagedFileKeepsNobodyOut(t *testing.T) {
	for _, content := range []string{"", "{", `{"a":1}`, `[{"hash":"!"}]`, `[{"hash":"","expires":"2999-01-01T00:00:00Z"}]`, `[{"expires":"x"}]`} {
		s := newSite(t)
		if err := os.WriteFile(s.file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		s.restart()
		if status := s.changes(""); status != http.StatusUnauthorized {
			t.Errorf("%q: a browser without a token: %d", content, status)
		}
		token := s.token()
		s.restart()
		if status := s.changes(token); status != http.StatusOK {
			t.Errorf("%q: a new token: %d", content, status)
		}
	}
}

func TestACodeIsNotUsedUpIfTheTokenCannotBeKept(t *testing.T) {
	s := newSite(t)
	old, code := s.token(), s.code()
	if err := os.Rename(filepath.Dir(s.file), filepath.Dir(s.file)+"-away"); err != nil {
		t.Fatal(err)
	}
	if status, line := s.try(code); status != http.StatusInternalServerError || strings.Count(line, "\n") != 1 {
		t.Errorf("without a disk: %d %q", status, line)
	}
	if status := s.changes(old); status != http.StatusOK {
		t.Errorf("the token from before: %d", status)
	}
	if err := os.Rename(filepath.Dir(s.file)+"-away", filepath.Dir(s.file)); err != nil {
		t.Fatal(err)
	}
	if status, _ := s.try(code); status != http.StatusOK {
		t.Errorf("once there is a disk: %d", status)
	}
}
