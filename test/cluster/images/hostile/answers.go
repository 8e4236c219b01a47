package hostile

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// EndlessBytes is after how many bytes an answer without an end ends.
const EndlessBytes = 128 << 20

// chunk is written at once.
const chunk = 64 << 10

// Endless begins an answer with some text, and goes on with letters.
func Endless(begin string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		letters := make([]byte, chunk)
		for i := range letters {
			letters[i] = 'x'
		}
		_, err := io.WriteString(w, begin)
		for sent := 0; err == nil && sent < EndlessBytes; sent += chunk {
			_, err = w.Write(letters)
		}
	}
}

// Drip sends one space each time, of as many as it has announced.
func Drip(size int64, every time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
		drip(w, req, bytes.Repeat([]byte(" "), int(size)), every)
	}
}

func drip(w http.ResponseWriter, req *http.Request, content []byte, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for i := range content {
		if _, err := w.Write(content[i : i+1]); err != nil || http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-ticker.C:
		case <-req.Context().Done():
			return
		}
	}
}

// Slowing sends content from the start on, but its end a byte at a time.
func Slowing(content []byte, after int, every time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		if _, err := w.Write(content[:after]); err == nil {
			drip(w, req, content[after:], every)
		}
	}
}

// Trickle sends the same piece each time, and announces that many bytes.
func Trickle(size int64, piece []byte, every time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			if _, err := w.Write(piece); err != nil || http.NewResponseController(w).Flush() != nil {
				return
			}
			select {
			case <-ticker.C:
			case <-req.Context().Done():
				return
			}
		}
	}
}

// Breaking sends the start of content, and breaks the connection then.
func Breaking(content []byte, after int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		_, _ = w.Write(content[:after])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// Crumbs sends one byte of what was asked for, and breaks the connection then.
func Crumbs(content []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		start := 0
		_, _ = fmt.Sscanf(req.Header.Get("Range"), "bytes=%d-", &start) // 0 where all is asked for
		code := http.StatusOK
		if start > 0 && start < len(content) {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", start, len(content)-1, len(content)))
			code = http.StatusPartialContent
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(content)-start))
		w.WriteHeader(code)
		_, _ = w.Write(content[start : start+1])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// LargeHeader goes before what a handler answers.
func LargeHeader(size int, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("X-Large", strings.Repeat("x", size))
		next(w, req)
	}
}

// Silent never answers.
func Silent(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }

// Redirect sends the client elsewhere.
func Redirect(url string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", url)
		w.WriteHeader(http.StatusTemporaryRedirect)
	}
}

// Say answers with a code, a header in pairs, and a body.
func Say(code int, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// Challenge asks for a token from an address.
func Challenge(realm string) http.HandlerFunc {
	return Say(http.StatusUnauthorized, "", "WWW-Authenticate", `Bearer realm="`+realm+`",service="x",scope="repository:app:pull"`)
}
