package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// sentRequest is one request in the bytes that a client sends, as a reader that has
// nothing in common with net/http finds it: the most that may come of them.
type sentRequest struct {
	method, target, proto string
	header                map[string][]string // by lower-case name
	body                  string
	whole                 bool // the body has ended
}

// sentRequests reads what is in raw, as far as it is HTTP/1. It takes what it can.
func sentRequests(raw string) []sentRequest {
	var all []sentRequest
	for {
		raw = strings.TrimLeft(raw, "\r\n")
		r := sentRequest{header: map[string][]string{}}
		line, rest, ok := nextLine(raw)
		method, words, _ := strings.Cut(line, " ")
		target, proto, two := strings.Cut(words, " ")
		if !ok || !two {
			return all
		}
		r.method, r.target, r.proto = method, target, proto
		if rest, ok = r.readHeader(rest); !ok {
			return all
		}
		raw = r.readBody(rest)
		all = append(all, r)
		if !r.whole {
			return all
		}
	}
}

func nextLine(raw string) (line, rest string, ok bool) {
	line, rest, ok = strings.Cut(raw, "\n")
	return strings.TrimSuffix(line, "\r"), rest, ok
}

// readHeader reads up to an empty line. Folded lines are joined with one blank.
func (r *sentRequest) readHeader(raw string) (rest string, ok bool) {
	last := ""
	for {
		var line string
		if line, raw, ok = nextLine(raw); !ok {
			return raw, false
		}
		if strings.Trim(line, " \t") == "" && (line == "" || last == "") {
			return raw, true
		}
		name, value, colon := strings.Cut(line, ":")
		switch {
		case last != "" && (line[0] == ' ' || line[0] == '\t'):
			values := r.header[last]
			values[len(values)-1] = strings.TrimSpace(values[len(values)-1] + " " + strings.TrimSpace(line))
		case !colon:
			return raw, false
		default:
			last = strings.ToLower(name)
			r.header[last] = append(r.header[last], strings.TrimSpace(value))
		}
	}
}

func (r *sentRequest) readBody(raw string) (rest string) {
	if r.proto != "HTTP/1.0" && strings.EqualFold(strings.Join(r.header["transfer-encoding"], ","), "chunked") {
		return r.readChunks(raw)
	}
	length := 0
	if said := r.header["content-length"]; len(said) > 0 {
		length, _ = strconv.Atoi(said[0])
	}
	n := min(max(length, 0), len(raw))
	r.body, r.whole = raw[:n], n == length
	return raw[n:]
}

func (r *sentRequest) readChunks(raw string) (rest string) {
	for {
		line, after, ok := nextLine(raw)
		size, _, _ := strings.Cut(line, ";")
		n, err := strconv.ParseUint(strings.TrimSpace(size), 16, 31)
		if !ok || err != nil {
			return ""
		}
		if n == 0 {
			trailer := sentRequest{header: map[string][]string{}}
			rest, r.whole = trailer.readHeader(after)
			return rest
		}
		took := min(int(n), len(after))
		r.body += after[:took]
		if _, raw, ok = nextLine(after[took:]); !ok {
			return ""
		}
	}
}

// path is the target without the scheme and host that it may begin with.
func (r *sentRequest) path() string {
	if _, rest, ok := strings.Cut(r.target, "://"); ok && !strings.HasPrefix(r.target, "/") {
		if slash := strings.IndexAny(rest, "/?"); slash >= 0 {
			return rest[slash:]
		}
	}
	return r.target
}

// hasCredentials reports whether the request has credentials.
func (r *sentRequest) hasCredentials() bool {
	protocols := strings.Split(strings.Join(r.header["sec-websocket-protocol"], ","), ",")
	return len(r.header["authorization"]) > 0 || slices.ContainsFunc(protocols, func(p string) bool {
		return strings.HasPrefix(strings.TrimSpace(p), "base64url.bearer.authorization.k8s.io.")
	})
}

// isWhoHeader reports whether a header names the caller, or on whose behalf it asks.
func isWhoHeader(name string) bool {
	return name == "authorization" || strings.HasPrefix(name, "impersonate-") || strings.HasPrefix(name, "x-remote-")
}

const lentToken = "Bearer the-nodes-own"

// difference describes in what got, which arrived at the apiserver, is more or other than
// what was sent; empty: in nothing.
func (r *sentRequest) difference(got *arrivedRequest) string {
	switch {
	case got.method != r.method, got.uri != r.path():
		return "line"
	case got.whole && (!r.whole || got.body != r.body), !strings.HasPrefix(r.body, got.body):
		return "body"
	}
	lent := slices.Equal(got.header["Authorization"], []string{lentToken})
	if lent == r.hasCredentials() {
		return "identity"
	}
	for name, values := range got.header {
		sent := r.header[strings.ToLower(name)]
		switch name {
		case "Authorization":
			if lent {
				continue
			}
		case "Connection", "Upgrade":
			if len(r.header["upgrade"]) > 0 {
				continue
			}
		case "Te":
			if len(r.header["te"]) > 0 {
				continue
			}
		case "Content-Length":
			if n, err := strconv.Atoi(values[0]); err == nil && (n == len(r.body) || n == len(got.body)) {
				continue
			}
		case "Cookie": // HTTP/2 has its own way to write it
			values, sent = []string{crumbs(values)}, []string{crumbs(sent)}
		}
		if len(values) > len(sent) || !slices.Equal(values, sent[:len(values)]) {
			return "header " + name
		}
	}
	for name, values := range r.header {
		if isWhoHeader(name) && !slices.Equal(values, got.header[http.CanonicalHeaderKey(name)]) {
			return "header " + name
		}
	}
	return ""
}

func crumbs(values []string) string {
	return strings.Trim(strings.ReplaceAll(strings.Join(values, ";"), " ", ""), ";")
}

// arrivedRequest is what the apiserver got.
type arrivedRequest struct {
	method, uri string
	header      http.Header
	body        string
	whole       bool
}

// recorder keeps what arrived, by the client's address, which is in a header that
// the test adds: a request that was cancelled may arrive when its connection is
// history, and is no other's.
type recorder struct {
	mu  sync.Mutex
	got map[string][]*arrivedRequest
}

const fromHeader = "X-Fuzzed-From"

func (rec *recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	from := r.Header.Get(fromHeader)
	r.Header.Del(fromHeader)
	one := &arrivedRequest{r.Method, r.RequestURI, r.Header.Clone(), string(body), err == nil}
	rec.mu.Lock()
	rec.got[from] = append(rec.got[from], one)
	rec.mu.Unlock()
	w.WriteHeader(http.StatusOK)
}

func (rec *recorder) from(address string) []*arrivedRequest {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	got := rec.got[address]
	clear(rec.got)
	return got
}

// FuzzRequests sends bytes to the port that lends the node's identity. What arrives
// at the apiserver has to be what was sent, request for request, or nothing: not one
// request more, no other path, no header that was not there, and the node's identity
// for those only who sent nothing of their own.
func FuzzRequests(f *testing.F) {
	rec := &recorder{got: map[string][]*arrivedRequest{}}
	hub := newHubWithToken(f, strings.TrimPrefix(lentToken, "Bearer "), rec.ServeHTTP)
	handler := hub.Config.Handler
	hub.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set(fromHeader, r.RemoteAddr)
		handler.ServeHTTP(w, r)
	})
	f.Fuzz(func(t *testing.T, input []byte) {
		if len(input) > 8<<10 || bytes.Contains(input, []byte("watch")) { // nobody would end it
			return
		}
		sent := sentRequests(string(input))
		if why := unsent(sent, rec.from(exchangeRaw(t, hub, input, sent))); why != "" {
			t.Fatal(why)
		}
	})
}

// unsent returns which of got was not sent so; empty: each was, and in that order.
func unsent(sent []sentRequest, got []*arrivedRequest) string {
	for _, one := range got {
		why, found := "nothing like it was sent", false
		for len(sent) > 0 && !found {
			why = sent[0].difference(one)
			found, sent = why == "", sent[1:]
		}
		if !found {
			return fmt.Sprintf("arrived, but was not sent so (%s): %+v", why, *one)
		}
	}
	return ""
}

// exchangeRaw sends input on a connection of its own, and returns the address that
// it came from when the whole requests in it have been answered, or the hub has
// closed the connection.
func exchangeRaw(t *testing.T, hub *hubUnderTest, input []byte, sent []sentRequest) (from string) {
	t.Helper()
	conn, err := net.Dial("tcp", hub.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	from = conn.LocalAddr().String()
	if _, err := conn.Write(input); err != nil {
		return from // the hub has had enough
	}
	answers := bufio.NewReader(conn)
	_ = conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond)) // for what the hub takes for unfinished
	for _, r := range sent {
		if !r.whole || !answered(answers, r.method) {
			break
		}
	}
	_ = conn.(*net.TCPConn).CloseWrite()
	_ = conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
	if _, err := io.Copy(io.Discard, answers); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("not answered within 2 minutes")
	}
	return from
}

// answered reads one answer, and reports whether another may follow.
func answered(from *bufio.Reader, method string) bool {
	for {
		res, err := http.ReadResponse(from, &http.Request{Method: method})
		if err != nil {
			return false
		}
		_, err = io.Copy(io.Discard, res.Body)
		if res.StatusCode >= http.StatusOK {
			return err == nil && !res.Close
		}
	}
}
