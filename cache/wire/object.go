package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/edgehub-io/edgehub/cache/wire/jsonscan"
)

// AppendBare appends object, self-describing or bare, to dst in its bare form, which is
// what a list holds and what is worth storing. JSON that a client has asked to be
// pretty comes out compact: the same object has the same bytes whoever read it.
//
// It fails if object does not stand for itself; dst comes back unchanged then.
func AppendBare(dst []byte, e Encoding, object []byte) ([]byte, error) {
	head, rest, err := Bare(e, object)
	if err != nil {
		return dst, err
	}
	return append(append(slices.Grow(dst, len(head)+len(rest)), head...), rest...), nil
}

// Bare returns the bare form of object in two parts, head and what follows it, to look
// at it without a copy: rest is a part of object unless that is pretty.
func Bare(e Encoding, object []byte) (head string, rest []byte, err error) {
	switch e {
	case Protobuf:
		if !bytes.HasPrefix(object, []byte(protoPrefix)) {
			return "", object, nil
		}
		_, _, rest, err = unwrapProto(object)
		return "", rest, err
	case JSON:
		return bareJSON(object)
	default:
		return "", nil, fmt.Errorf("store object: %w", ErrEncoding)
	}
}

// AppendObject appends a bare object to dst in its self-describing form, as it stands in
// a watch event. JSON that says itself what it is stays as it is.
func AppendObject(dst []byte, e Encoding, t TypeMeta, bare []byte) []byte {
	if e == Protobuf {
		return appendProtoObject(dst, t, bare)
	}
	return appendJSONObject(dst, t, bare)
}

// AppendBody appends the body of the answer to a GET: an object, and in JSON a newline.
func AppendBody(dst []byte, e Encoding, t TypeMeta, bare []byte) []byte {
	dst = AppendObject(dst, e, t, bare)
	if e == JSON {
		dst = append(dst, '\n')
	}
	return dst
}

func bareJSON(object []byte) (head string, rest []byte, err error) {
	object = bytes.TrimSpace(object)
	if len(object) < 2 || object[0] != '{' {
		return "", nil, fmt.Errorf("store JSON object: it begins with %.10q: %w", object, ErrMalformed)
	}
	if jsonscan.SkipSpace(object, 1) > 1 {
		compact := bytes.NewBuffer(make([]byte, 0, len(object)))
		if err := json.Compact(compact, object); err != nil {
			return "", nil, fmt.Errorf("compact JSON object: %w: %w", ErrMalformed, err)
		}
		object = compact.Bytes()
	}
	if n := jsonTypeLength(object); n > 0 {
		return "{", object[n:], nil
	}
	return "", object, nil
}

// jsonTypeLength returns the length of {"kind":"…","apiVersion":"…", if object begins like
// that, which is how types of Go are written, and else 0. Maps have sorted keys,
// apiVersion first; so they are never taken for one.
func jsonTypeLength(object []byte) int {
	rest := object
	for _, key := range []string{`{"kind":"`, `,"apiVersion":"`} {
		value, ok := bytes.CutPrefix(rest, []byte(key))
		end := bytes.IndexAny(value, `"\`)
		if !ok || end < 0 || value[end] != '"' {
			return 0
		}
		rest = value[end+1:]
	}
	if !bytes.HasPrefix(rest, []byte{','}) {
		return 0
	}
	return len(object) - len(rest) + 1
}

func appendJSONObject(dst []byte, t TypeMeta, bare []byte) []byte {
	if jsonSaysType(bare) {
		return append(dst, bare...)
	}
	dst = appendJSONType(dst, t)
	if len(bare) > len("{}") {
		dst = append(dst, ',')
	}
	if len(bare) == 0 { // nothing was stored: an object without members
		return append(dst, '}')
	}
	return append(dst, bare[1:]...)
}

// appendJSONType appends {"kind":"…","apiVersion":"…".
func appendJSONType(dst []byte, t TypeMeta) []byte {
	dst = append(dst, `{"kind":`...)
	dst = appendJSONString(dst, t.Kind)
	dst = append(dst, `,"apiVersion":`...)
	return appendJSONString(dst, t.APIVersion)
}

// jsonSaysType reports whether object has a kind. The first key tells for all that
// apiservers write: only where it is none of the usual ones, the whole object is read.
func jsonSaysType(object []byte) bool {
	switch {
	case bytes.HasPrefix(object, []byte(`{"metadata":`)):
		return false
	case bytes.HasPrefix(object, []byte(`{"apiVersion":`)), bytes.HasPrefix(object, []byte(`{"kind":`)):
		return true
	}
	m, err := inspectJSON(object)
	return err == nil && len(m.Kind) > 0
}

// appendJSONString appends s in quotes, escaped as apiservers do it.
func appendJSONString(dst []byte, s string) []byte {
	return append(dst, mustMarshal(s)...)
}
