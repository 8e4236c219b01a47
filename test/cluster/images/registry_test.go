package images_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/edgehub-io/edgehub/test/cluster/images"
)

const layerSize = 1 << 20

// fixture is a registry with one image of one layer, and who reads it.
type fixture struct {
	*images.Registry
	client *http.Client
	layer  v1.Layer
	digest v1.Hash
	size   int64
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return fixtureOf(t, images.Serve)
}

func fixtureOf(t *testing.T, serve func(string) (*images.Registry, error)) *fixture {
	t.Helper()
	registry, err := serve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := registry.Close(); err != nil {
			t.Error(err)
		}
	})
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	f := &fixture{Registry: registry, client: &http.Client{Transport: transport}}
	if f.layer, err = images.Ballast(1, layerSize); err != nil {
		t.Fatal(err)
	}
	if f.digest, err = f.layer.Digest(); err != nil {
		t.Fatal(err)
	}
	if f.size, err = f.layer.Size(); err != nil {
		t.Fatal(err)
	}
	f.push(t, "app", "v1", f.layer)
	return f
}

func (f *fixture) push(t *testing.T, repository, tag string, layers ...v1.Layer) v1.Image {
	t.Helper()
	image, err := images.New(images.Platform("amd64"), layers...)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Push(t.Context(), repository, tag, image); err != nil {
		t.Fatal(err)
	}
	return image
}

// get reads an answer as far as it goes; err is how its body ended.
func (f *fixture) get(t *testing.T, path string, edit ...func(*http.Request)) (answer *http.Response, body []byte, err error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.URL()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range edit {
		e(req)
	}
	answer, err = f.client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer answer.Body.Close()
	body, err = io.ReadAll(answer.Body)
	return answer, body, err
}

func (f *fixture) blob(repository string) string {
	return "/v2/" + repository + "/blobs/" + f.digest.String()
}

func withRange(value string) func(*http.Request) {
	return func(req *http.Request) { req.Header.Set("Range", value) }
}

func withUser(user, password string) func(*http.Request) {
	return func(req *http.Request) { req.SetBasicAuth(user, password) }
}

func TestRangesOfABlob(t *testing.T) {
	f := newFixture(t)
	_, whole, err := f.get(t, f.blob("app"))
	if err != nil || sum(whole) != f.digest.Hex {
		t.Fatalf("the whole blob: %d bytes with sum %s, %v", len(whole), sum(whole), err)
	}
	for name, test := range map[string]struct {
		ask    string
		status int
		answer string // Content-Range
		from   int64
		to     int64 // exclusive
	}{
		"from a byte to the end":    {"bytes=1000-", 206, fmt.Sprintf("bytes 1000-%d/%d", f.size-1, f.size), 1000, f.size},
		"from a byte to another":    {"bytes=10-19", 206, fmt.Sprintf("bytes 10-19/%d", f.size), 10, 20},
		"further than there is any": {fmt.Sprintf("bytes=10-%d", f.size+5), 206, fmt.Sprintf("bytes 10-%d/%d", f.size-1, f.size), 10, f.size},
		"behind the end":            {fmt.Sprintf("bytes=%d-", f.size), 416, fmt.Sprintf("bytes */%d", f.size), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			answer, body, err := f.get(t, f.blob("app"), withRange(test.ask))
			if err != nil {
				t.Fatal(err)
			}
			if answer.StatusCode != test.status || answer.Header.Get("Content-Range") != test.answer {
				t.Errorf("answer %d, Content-Range %q; want %d, %q",
					answer.StatusCode, answer.Header.Get("Content-Range"), test.status, test.answer)
			}
			if test.status == http.StatusPartialContent && !bytes.Equal(body, whole[test.from:test.to]) {
				t.Errorf("%d bytes that are not those from %d to %d", len(body), test.from, test.to)
			}
		})
	}
	t.Run("a registry that ignores them", func(t *testing.T) {
		f.IgnoreRanges(true)
		answer, body, err := f.get(t, f.blob("app"), withRange("bytes=10-"))
		if err != nil || answer.StatusCode != http.StatusOK || int64(len(body)) != f.size {
			t.Errorf("answer %v with %d bytes, %v; want 200 with all %d", answer, len(body), err, f.size)
		}
	})
}

func TestWhatIsServedIsCounted(t *testing.T) {
	f := newFixture(t)
	if len(f.Requests()) != 0 || f.Bytes() != 0 {
		t.Fatalf("the push is counted: %v", f.Requests())
	}
	for _, path := range []string{f.blob("app"), "/v2/app/manifests/v1", "/v2/app/manifests/none"} {
		if _, _, err := f.get(t, path); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := f.get(t, f.blob("app"), withRange("bytes=0-99"), withUser("anna", "secret")); err != nil {
		t.Fatal(err)
	}
	all := f.Requests()
	if len(all) != 4 {
		t.Fatalf("%d requests in the log, want 4: %v", len(all), all)
	}
	if got := f.BytesOf(f.digest); got != f.size+100 {
		t.Errorf("BytesOf the layer = %d, want %d", got, f.size+100)
	}
	if want := f.size + 100 + all[1].Bytes; f.Bytes() != want || all[1].Bytes == 0 {
		t.Errorf("Bytes = %d, want %d: layer and manifest, and no error", f.Bytes(), want)
	}
	for i, want := range []images.Request{
		{Method: "GET", Path: f.blob("app"), Status: 200, Digest: f.digest.String(), Bytes: f.size},
		{Method: "GET", Path: "/v2/app/manifests/v1", Status: 200, Digest: all[1].Digest, Bytes: all[1].Bytes},
		{Method: "GET", Path: "/v2/app/manifests/none", Status: 404, Bytes: all[2].Bytes},
		{Method: "GET", Path: f.blob("app"), Status: 206, Digest: f.digest.String(), Bytes: 100, Range: "bytes=0-99", User: "anna"},
	} {
		got := all[i]
		got.Time, got.UserAgent = time.Time{}, ""
		if got != want {
			t.Errorf("request %d = %+v, want %+v", i, got, want)
		}
	}
	f.Forget()
	if len(f.Requests()) != 0 || f.Bytes() != 0 || f.BytesOf(f.digest) != 0 {
		t.Error("Forget leaves something")
	}
}

func TestRateIsThatOfAllAnswersTogether(t *testing.T) {
	f := newFixture(t)
	f.SetRate(2 * layerSize)
	start := time.Now()
	ended := make(chan error, 2)
	for range 2 {
		go func() {
			_, _, err := f.get(t, f.blob("app"))
			ended <- err
		}()
	}
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if took := time.Since(start); took < 900*time.Millisecond {
		t.Errorf("twice the layer at twice the layer a second took %s, want 1 s at least", took)
	}
}

func TestAnswersAreCut(t *testing.T) {
	const after = layerSize / 2
	for name, serve := range map[string]func(string) (*images.Registry, error){"plain": images.Serve, "over TLS": images.ServeTLS} {
		for _, test := range []struct {
			name string
			way  images.Cut
			want func(error) bool
		}{
			{"with a reset", images.Reset, func(err error) bool { return errors.Is(err, syscall.ECONNRESET) }},
			{"with an orderly end", images.Finish, func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		} {
			t.Run(name+", "+test.name, func(t *testing.T) {
				f := fixtureOf(t, serve)
				f.trust(t)
				f.CutAfter(f.digest, after, test.way)
				_, body, err := f.get(t, f.blob("app"))
				if !test.want(err) {
					t.Errorf("the answer ends with %v", err)
				}
				if len(body) != after || f.BytesOf(f.digest) != after {
					t.Errorf("%d bytes came and %d are counted, want %d", len(body), f.BytesOf(f.digest), after)
				}
				if _, body, err = f.get(t, f.blob("app"), withRange(fmt.Sprintf("bytes=%d-", after))); err != nil {
					t.Errorf("the next answer is cut, too: %v", err)
				}
				if got := f.BytesOf(f.digest); got != f.size {
					t.Errorf("%d bytes are counted after the rest of %d, want %d", got, len(body), f.size)
				}
			})
		}
	}
	t.Run("by hanging", func(t *testing.T) {
		f := newFixture(t)
		f.CutAfter(f.digest, after, images.Hang)
		answer, err := f.client.Get(f.URL() + f.blob("app"))
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if _, err := io.ReadFull(answer.Body, make([]byte, after)); err != nil {
			t.Fatal(err)
		}
		more := make(chan error, 1)
		go func() {
			_, err := answer.Body.Read(make([]byte, 1))
			more <- err
		}()
		select {
		case err := <-more:
			t.Errorf("it goes on, or ends: %v", err)
		case <-time.After(200 * time.Millisecond):
		}
		if err := f.Down(); err != nil {
			t.Error(err)
		}
		if err := <-more; err == nil {
			t.Error("the rest came")
		}
	})
	t.Run("once for each call, and at the start", func(t *testing.T) {
		f := newFixture(t)
		f.CutAfter(f.digest, 0, images.Finish)
		f.CutAfter(f.digest, 10, images.Finish)
		for _, want := range []int{0, 10, int(f.size)} {
			if _, body, _ := f.get(t, f.blob("app")); len(body) != want {
				t.Errorf("%d bytes, want %d", len(body), want)
			}
		}
	})
}

func TestRequestsFail(t *testing.T) {
	f := newFixture(t)
	f.Fail(func(req *http.Request) (int, http.Header, bool) {
		switch {
		case strings.Contains(req.URL.Path, "/manifests/"):
			return http.StatusTooManyRequests, http.Header{"Retry-After": {"7"}}, true
		case req.Header.Get("Range") != "":
			return http.StatusInternalServerError, nil, true
		}
		return 0, nil, false
	})
	for name, test := range map[string]struct {
		path   string
		edit   func(*http.Request)
		status int
		after  string
	}{
		"with a time to wait": {"/v2/app/manifests/v1", func(*http.Request) {}, 429, "7"},
		"by their header":     {f.blob("app"), withRange("bytes=1-"), 500, ""},
		"or not at all":       {f.blob("app"), func(*http.Request) {}, 200, ""},
	} {
		t.Run(name, func(t *testing.T) {
			answer, _, err := f.get(t, test.path, test.edit)
			if err != nil || answer.StatusCode != test.status || answer.Header.Get("Retry-After") != test.after {
				t.Errorf("answer %v, %v; want %d, Retry-After %q", answer, err, test.status, test.after)
			}
		})
	}
	f.Fail(nil)
	if answer, _, err := f.get(t, "/v2/app/manifests/v1"); err != nil || answer.StatusCode != http.StatusOK {
		t.Errorf("with nothing set to fail: %v, %v", answer, err)
	}
}

func TestDownAndUpAgain(t *testing.T) {
	f := newFixture(t)
	f.SetRate(layerSize)
	ended := make(chan error, 1)
	go func() {
		_, _, err := f.get(t, f.blob("app"))
		ended <- err
	}()
	if err := f.AwaitBytes(t.Context(), f.digest, layerSize/4); err != nil {
		t.Fatal(err)
	}
	if err := f.Down(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("what was under way went on to its end")
	}
	if _, _, err := f.get(t, f.blob("app")); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("while it is down: %v, want the connection refused", err)
	}
	f.SetRate(0)
	if err := f.Up(); err != nil {
		t.Fatal(err)
	}
	if _, body, err := f.get(t, f.blob("app")); err != nil || sum(body) != f.digest.Hex {
		t.Errorf("after it is up again: %d bytes, %v", len(body), err)
	}
}

func TestPasswords(t *testing.T) {
	f := newFixture(t)
	f.push(t, "private", "v1", f.layer)
	f.push(t, "other", "v1", f.layer)
	f.Require("private", "anna", "secret")
	f.Require("private", "bob", "hidden")
	f.Require("other", "carl", "own")
	for name, test := range map[string]struct {
		repository, user, password string
		want                       int
	}{
		"a reader":                             {"private", "anna", "secret", 200},
		"another reader":                       {"private", "bob", "hidden", 200},
		"the password of someone else":         {"private", "anna", "hidden", 401},
		"nobody":                               {"private", "", "", 401},
		"a reader of another repository":       {"private", "carl", "own", 403},
		"a repository that all may read":       {"app", "", "", 200},
		"the same with a password for another": {"app", "anna", "secret", 200},
	} {
		t.Run(name, func(t *testing.T) {
			var edit []func(*http.Request)
			if test.user != "" {
				edit = append(edit, withUser(test.user, test.password))
			}
			for _, path := range []string{"/v2/" + test.repository + "/manifests/v1", f.blob(test.repository)} {
				answer, _, err := f.get(t, path, edit...)
				if err != nil || answer.StatusCode != test.want {
					t.Errorf("%s: %v, %v; want %d", path, answer, err, test.want)
				}
				if challenge := answer.Header.Get("WWW-Authenticate"); strings.HasPrefix(challenge, "Basic ") != (test.want == 401) {
					t.Errorf("%s: challenge %q with %d", path, challenge, test.want)
				}
			}
		})
	}
}

func TestTokens(t *testing.T) {
	f := newFixture(t)
	f.Require("app", "anna", "secret")
	f.Require("other", "carl", "own")
	f.UseTokens(time.Minute)
	answer, _, err := f.get(t, f.blob("app"), withUser("anna", "secret"))
	want := `Bearer realm="` + f.URL() + `/token",service="images",scope="repository:app:pull"`
	if err != nil || answer.StatusCode != http.StatusUnauthorized || answer.Header.Get("WWW-Authenticate") != want {
		t.Fatalf("a password instead of a token: %v, %v", answer, err)
	}
	byForm := func(user, password string) string {
		answer, err := f.client.PostForm(f.URL()+"/token", url.Values{"username": {user}, "password": {password}})
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		return tokenIn(t, answer.StatusCode, answer.Body)
	}
	byHeader := func(user, password string) string {
		answer, body, err := f.get(t, "/token", withUser(user, password))
		if err != nil {
			t.Fatal(err)
		}
		return tokenIn(t, answer.StatusCode, strings.NewReader(string(body)))
	}
	expectStatus := func(token string, want int) {
		t.Helper()
		answer, _, err := f.get(t, f.blob("app"), func(req *http.Request) { req.Header.Set("Authorization", "Bearer "+token) })
		if err != nil || answer.StatusCode != want {
			t.Errorf("answer %v, %v; want %d", answer, err, want)
		}
	}
	expectStatus(byForm("anna", "secret"), http.StatusOK)
	expectStatus(byHeader("anna", "secret"), http.StatusOK)
	expectStatus(byHeader("carl", "own"), http.StatusForbidden)
	expectStatus("made-up", http.StatusUnauthorized)
	if byForm("anna", "wrong") != "" || byHeader("anna", "wrong") != "" {
		t.Error("a wrong password gets a token")
	}
	f.UseTokens(0)
	expectStatus(byForm("anna", "secret"), http.StatusUnauthorized)
}

func tokenIn(t *testing.T, status int, body io.Reader) string {
	t.Helper()
	if status != http.StatusOK {
		return ""
	}
	var reply struct{ Token string }
	if err := json.NewDecoder(body).Decode(&reply); err != nil {
		t.Fatal(err)
	}
	return reply.Token
}

func TestTLS(t *testing.T) {
	f := fixtureOf(t, images.ServeTLS)
	var unknown *tls.CertificateVerificationError
	if _, _, err := f.get(t, f.blob("app")); !errors.As(err, &unknown) {
		t.Errorf("without the authority: %v, want its certificate rejected", err)
	}
	f.trust(t)
	if _, body, err := f.get(t, f.blob("app")); err != nil || sum(body) != f.digest.Hex {
		t.Errorf("with it: %d bytes, %v", len(body), err)
	}
}

// trust makes the client accept the registry's authority, if it has one.
func (f *fixture) trust(t *testing.T) {
	t.Helper()
	pool := x509.NewCertPool()
	if ca := f.CA(); ca != nil && !pool.AppendCertsFromPEM(ca) {
		t.Fatalf("CA is not in PEM: %s", ca)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	t.Cleanup(transport.CloseIdleConnections)
	f.client = &http.Client{Transport: transport}
}

func sum(content []byte) string { return fmt.Sprintf("%x", sha256.Sum256(content)) }

// A client that stops reading has nearly all bytes that count as served, however large the
// receive buffer is that its kernel gives it.
func TestBytesThatNobodyReadsAreNotServed(t *testing.T) {
	f := newFixture(t)
	response, err := f.client.Get(f.URL() + f.blob("app"))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	const read = 400_000
	if _, err := io.CopyN(io.Discard, response.Body, read); err != nil {
		t.Fatal(err)
	}
	// The registry looks, and must not send, as often as it would in some 100 ms.
	const looks = 1000
	deadline := time.Now().Add(2 * time.Minute)
	for enough := f.Waits() + looks; f.Waits() < enough; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the registry does not wait for its client: it has sent %d bytes", f.BytesOf(f.digest))
		}
	}
	const limit = 32<<10 + 4<<10 // in flight, and in net/http's own buffer
	if n := f.BytesOf(f.digest); n < read || n > read+limit {
		t.Errorf("%d bytes count as served when %d were read; want at most %d more", n, read, limit)
	}
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Error(err)
	}
	if n := f.BytesOf(f.digest); n != f.size {
		t.Errorf("%d bytes count as served of a blob of %d", n, f.size)
	}
}
