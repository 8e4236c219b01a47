package tee

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
)

// zipped is a member of a gzip stream.
func zipped(t *testing.T, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// A node has hundreds of watches: one that waits holds no decompressor.
func TestAWatchThatWaitsHoldsNoDecompressor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := io.Pipe()
		res := &http.Response{Header: http.Header{"Content-Encoding": {"gzip"}, "Content-Length": {"7"}}, ContentLength: 7, Body: in}
		if err := UnzipWatch(res); err != nil {
			t.Fatal(err)
		}
		u, ok := res.Body.(*unzipped)
		if !ok || len(res.Header) > 0 || res.ContentLength != -1 { // neither holds for what the client gets
			t.Fatalf("%T, %v", res.Body, res.Header)
		}
		done := make(chan string)
		go func() {
			body, err := io.ReadAll(u)
			done <- fmt.Sprint(string(body), err)
		}()
		for _, text := range []string{"first", "second"} {
			if _, err := out.Write(zipped(t, text)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if u.member != nil {
				t.Errorf("after the %s member it holds a decompressor", text)
			}
		}
		out.Close()
		if got, want := <-done, "firstsecond<nil>"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}
