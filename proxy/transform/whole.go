package transform

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/edgehub-io/edgehub/cache/wire"
)

// maxBody bounds the body of a GET or LIST, in bytes, decompressed.
const maxBody = 64 << 20

// errDropped is returned for an object that its reader does not read.
var errDropped = errors.New("dropped")

// whole transforms the answer to a GET or LIST. Filters let what they cannot read pass: one
// author's objects must not keep a client from reading everybody's.
func (a *answer) whole(res *http.Response) error {
	if a.idle() {
		return nil
	}
	body, rest, err := readBody(res)
	if err == nil && rest != nil {
		err = fmt.Errorf("larger than %d MiB", maxBody>>20)
		if a.filters() {
			a.passed("path", res.Request.URL.Path, "err", err)
			res.Body = struct {
				io.Reader
				io.Closer
			}{io.MultiReader(bytes.NewReader(body), rest), res.Body}
			res.Header.Del("Content-Length")
			res.ContentLength = -1
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("read an answer: %w", err)
	}
	edited, err := a.body(body)
	switch {
	case err == nil:
	case a.filters() && !errors.Is(err, errDropped):
		a.passed("path", res.Request.URL.Path, "err", err)
		edited = body
	default:
		return err
	}
	res.Body.Close()
	res.Body = io.NopCloser(bytes.NewReader(edited))
	res.ContentLength = int64(len(edited))
	res.Header.Set("Content-Length", strconv.Itoa(len(edited)))
	return nil
}

// readBody reads a body up to maxBody, and undoes its compression. rest is what follows, nil if
// nothing does.
func readBody(res *http.Response) (body []byte, rest io.Reader, err error) {
	var in io.Reader = res.Body
	switch e := res.Header.Get("Content-Encoding"); e {
	case "", "identity":
	case "gzip":
		if in, err = gzip.NewReader(in); err != nil {
			return nil, nil, err
		}
		res.Header.Del("Content-Encoding")
	default:
		return nil, nil, fmt.Errorf("the encoding is %q", e)
	}
	body, err = io.ReadAll(io.LimitReader(in, maxBody+1))
	if len(body) > maxBody {
		rest = in
	}
	return body, rest, err
}

func (a *answer) body(body []byte) ([]byte, error) {
	whole, err := wire.Inspect(a.encoding, body)
	if err != nil {
		return nil, err
	}
	switch kind := string(whole.Kind); {
	case slices.Contains(kinds, kind):
		bare, err := wire.AppendBare(nil, a.encoding, body)
		if err != nil {
			return nil, err
		}
		out, err := a.object(bare, &whole)
		switch {
		case err != nil:
			return nil, err
		case out.dropped:
			return nil, errDropped
		case !out.changed:
			return body, nil
		}
		return wire.AppendBody(nil, a.encoding, whole.TypeMeta(), out.bare), nil
	case slices.Contains(kinds, strings.TrimSuffix(kind, "List")):
		return a.list(body)
	}
	return body, nil // a Table, or metadata
}

// kinds are the objects that transforms are for.
var kinds = []string{"Service", "ConfigMap", "EndpointSlice", "Pod", "Secret"}

// list transforms the items of a list.
func (a *answer) list(body []byte) ([]byte, error) {
	var items [][]byte
	var sizes wire.ItemSizes
	anyChanged := false
	splitter, err := wire.NewSplitter(a.encoding, func(item []byte, m *wire.Meta) error {
		out, err := a.object(item, m)
		if err != nil {
			return err
		}
		anyChanged = anyChanged || out.changed || out.dropped
		if out.dropped {
			return nil
		}
		if !out.changed {
			out.bare = bytes.Clone(item)
		}
		items = append(items, out.bare)
		sizes.Add(len(out.bare))
		return nil
	})
	if err != nil {
		return nil, err
	}
	_, _ = splitter.Write(body) // tells its error in Close
	meta, err := splitter.Close()
	if err != nil || !anyChanged {
		return body, err
	}
	var out bytes.Buffer
	w, err := wire.NewListWriter(&out, a.encoding, meta, sizes)
	if err != nil {
		return nil, err
	}
	for _, item := range items {
		if err := w.WriteItem(item); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
