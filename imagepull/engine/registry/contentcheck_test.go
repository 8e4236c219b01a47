package registry

import (
	"errors"
	"net/http"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

func TestCheckContent(t *testing.T) {
	const size = 1000
	tests := map[string]struct {
		asked      string // Range
		status     int
		length     int64
		header     http.Header
		unexpected bool
	}{
		"the whole blob":                           {status: 200, length: size},
		"the whole blob of unknown length":         {status: 200, length: -1},
		"the whole blob as text":                   {status: 200, length: size, header: http.Header{"Content-Type": {"text/html"}}},
		"less than the blob":                       {status: 200, length: size - 1, unexpected: true},
		"more than the blob":                       {status: 200, length: size + 1, unexpected: true},
		"a page of an unknown length":              {status: 200, length: -1, header: http.Header{"Content-Type": {"text/html; charset=utf-8"}}, unexpected: true},
		"encoded with gzip":                        {status: 200, length: 500, header: http.Header{"Content-Encoding": {"gzip"}}},
		"encoded with zstd":                        {status: 200, length: 500, header: http.Header{"Content-Encoding": {"zstd"}}, unexpected: true},
		"encoded twice":                            {status: 200, length: 500, header: http.Header{"Content-Encoding": {"gzip, gzip"}}, unexpected: true},
		"encoded twice, in two headers":            {status: 200, length: 500, header: http.Header{"Content-Encoding": {"gzip", "gzip"}}, unexpected: true},
		"the requested range":                      {asked: "bytes=400-", status: 206, header: http.Header{"Content-Range": {"bytes 400-999/1000"}}},
		"the requested range of an unknown length": {asked: "bytes=400-", status: 206, header: http.Header{"Content-Range": {"bytes 400-999/*"}}},
		"some of the rest":                         {asked: "bytes=400-", status: 206, header: http.Header{"Content-Range": {"bytes 400-499/1000"}}},
		"all in place of the rest":                 {asked: "bytes=400-", status: 200, length: size},
		"another part":                             {asked: "bytes=400-", status: 206, header: http.Header{"Content-Range": {"bytes 0-999/1000"}}, unexpected: true},
		"the rest of something else":               {asked: "bytes=400-", status: 206, header: http.Header{"Content-Range": {"bytes 400-999/2000"}}, unexpected: true},
		"a part without a word":                    {asked: "bytes=400-", status: 206, length: 600, unexpected: true},
		"a part that nobody asked for":             {status: 206, header: http.Header{"Content-Range": {"bytes 400-999/1000"}}, unexpected: true},
		"a refusal":                                {status: 404, length: 20},
		"a way to somewhere else":                  {status: 307, length: 20},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			request := &http.Request{Header: http.Header{"Range": {tt.asked}}}
			response := &http.Response{StatusCode: tt.status, ContentLength: tt.length, Header: tt.header, Request: request}
			err := checkContent(response, ocispec.Descriptor{Digest: digest.FromString("x"), Size: size})
			if _, unexpected := errors.AsType[*unexpectedResponse](err); unexpected != tt.unexpected || !unexpected && err != nil {
				t.Errorf("got %v", err)
			}
		})
	}
}
