package support

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// read returns the files of a bundle.
func read(t *testing.T, b []byte) map[string]string {
	t.Helper()
	compressed, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	archive := tar.NewReader(compressed)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(content)
	}
}

func TestWrite(t *testing.T) {
	var out bytes.Buffer
	ring := &Ring{}
	fmt.Fprintln(ring, "hub serves")
	err := Write(t.Context(), &out, []Part{
		{"log.txt", ring.CopyTo},
		{"metrics.txt", Answer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "edgehub_up 1\n") }))},
		{"missing.txt", Answer(http.NotFoundHandler())},
		{"broken.json", func(context.Context, io.Writer) error { return errors.New("no pods") }},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"log.txt": "hub serves\n", "metrics.txt": "edgehub_up 1\n",
		"missing.txt": "404 page not found\n\nthis could not be read: it is answered with 404\n",
		"broken.json": "\nthis could not be read: no pods\n",
	}
	if got := read(t, out.Bytes()); !reflect.DeepEqual(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestACallerWhoIsGone(t *testing.T) {
	reader, writer := io.Pipe()
	reader.Close()
	if err := Write(t.Context(), writer, []Part{{"log.txt", (&Ring{}).CopyTo}}); err == nil {
		t.Error("a bundle that nobody got is whole")
	}
}

func TestRedact(t *testing.T) {
	args := []string{
		"--node-name=gate-17", "--server-addr=https://admin:sesame@10.0.0.1:6443,https://10.0.0.2", "--join-token=sesame", "--join-token", "sesame", "--v=2",
		"--token-file=/etc/token", "--proxy", "http://u:sesame@proxy",
	}
	want := []string{
		"--node-name=gate-17", "--server-addr=https://REDACTED@10.0.0.1:6443,https://10.0.0.2", "--join-token=REDACTED", "--join-token", "REDACTED", "--v=2",
		"--token-file=/etc/token", "--proxy", "http://REDACTED@proxy",
	}
	if got := redact(args); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestTheRingKeepsTheLastLines(t *testing.T) {
	ring := &Ring{}
	for i := range 20_000 {
		fmt.Fprintf(ring, "line %d with some more text\n", i)
	}
	var out strings.Builder
	if err := ring.CopyTo(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	if len(text) > ringSize || len(text) < ringSize/2 || !strings.HasPrefix(text, "line ") || !strings.HasSuffix(text, "line 19999 with some more text\n") {
		t.Errorf("%d bytes, from %.40q to %q", len(text), text, text[len(text)-40:])
	}
}
