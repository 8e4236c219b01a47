// Package support writes support bundles: what an admin wants to see of a node that is far away, in one file,
// without secrets.
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
	"net/url"
	"strings"
	"time"
)

// Part is a file of a bundle. Write writes its content, which is held in memory.
type Part struct {
	Name  string
	Write func(context.Context, io.Writer) error
}

// Write writes a bundle, as tar.gz. A part that cannot be written has the reason as its content: the others
// may show more.
func Write(ctx context.Context, w io.Writer, parts []Part) error {
	compressed := gzip.NewWriter(w)
	archive := tar.NewWriter(compressed)
	now := time.Now().Truncate(time.Second)
	for _, part := range parts {
		var content bytes.Buffer
		if err := part.Write(ctx, &content); err != nil {
			fmt.Fprintf(&content, "\nthis could not be read: %v\n", err)
		}
		header := &tar.Header{Name: part.Name, Mode: 0o600, Size: int64(content.Len()), ModTime: now}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(content.Bytes()); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), compressed.Close(), ctx.Err())
}

// Answer returns the Write of a Part that is the answer of a handler to GET.
func Answer(h http.Handler) func(context.Context, io.Writer) error {
	return func(ctx context.Context, w io.Writer) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody)
		if err != nil {
			return err
		}
		a := answer{header: http.Header{}, Writer: w, code: http.StatusOK}
		h.ServeHTTP(&a, req)
		if a.code != http.StatusOK {
			return fmt.Errorf("it is answered with %d", a.code)
		}
		return nil
	}
}

// answer is an http.ResponseWriter.
type answer struct {
	io.Writer
	header http.Header
	code   int
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(code int) { a.code = code }

// Flags returns the part with the flags that the hub was started with.
func Flags(args []string) Part {
	return Part{Name: "flags.txt", Write: func(_ context.Context, w io.Writer) error {
		_, err := fmt.Fprintln(w, strings.Join(redact(args), "\n"))
		return err
	}}
}

// redact returns the arguments of a program without what may be secret: the values of flags whose names
// tell of secrets and not of files, and the users in URLs.
func redact(args []string) []string {
	redacted := make([]string, 0, len(args))
	hide := false // the next argument is the value of a secret flag
	for _, arg := range args {
		name, value, hasValue := strings.Cut(arg, "=")
		isFlag := strings.HasPrefix(arg, "-")
		switch {
		case hide && !isFlag:
			arg = "REDACTED"
		case isFlag && isSecret(name) && hasValue:
			arg = name + "=REDACTED"
		case isFlag && hasValue:
			arg = name + "=" + withoutUsers(value)
		default:
			arg = withoutUsers(arg)
		}
		hide = isFlag && isSecret(name) && !hasValue
		redacted = append(redacted, arg)
	}
	return redacted
}

func isSecret(flag string) bool {
	for _, word := range []string{"token", "password", "secret"} {
		if strings.Contains(flag, word) && !strings.HasSuffix(flag, "file") {
			return true
		}
	}
	return false
}

// withoutUsers removes users and passwords from a list of URLs.
func withoutUsers(list string) string {
	values := strings.Split(list, ",")
	for i, value := range values {
		if u, err := url.Parse(value); err == nil && u.User != nil {
			u.User = url.User("REDACTED")
			values[i] = u.String()
		}
	}
	return strings.Join(values, ",")
}
