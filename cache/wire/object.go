package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// AppendBare appends object, self-describing or bare, to dst in its bare form, in which it is
// stored. Indented JSON becomes compact: the same object has the same bytes whoever read it.
// After an error, dst is unchanged.
func AppendBare(dst []byte, e Encoding, object []byte) ([]byte, error) {
	head, rest, err := Bare(e, object)
	if err != nil {
		return dst, err
	}
	return append(append(slices.Grow(dst, len(head)+len(rest)), head...), rest...), nil
}

// Bare returns the bare form of object in two parts, without copying it: rest is a part of
// object, unless that is indented JSON.
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

// AppendObject appends a bare object to dst in its self-describing form. JSON with a kind of its
// own stays as it is.
func AppendObject(dst []byte, e Encoding, t TypeMeta, bare []byte) []byte {
	if e == Protobuf {
		return appendProtoObject(dst, t, bare)
	}
	return appendJSONObject(dst, t, bare)
}

// AppendBody appends the body of the answer to a GET: an object, in JSON with a newline.
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
	if skipSpace(object, 1) > 1 {
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

// jsonTypeLength returns the length of {"kind":"…","apiVersion":"…", if object begins with that,
// and else 0. Go types are written that way; maps have sorted keys, apiVersion first. No type has
// escapes: one that had would stay in the object.
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
	if len(bare) == 0 { // an object without members
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

// jsonSaysType reports whether object has a kind. For objects that apiservers write the first
// key usually shows it; otherwise the whole object is read.
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

// appendJSONString appends s in quotes, escaped as by an apiserver.
func appendJSONString(dst []byte, s string) []byte {
	return append(dst, mustMarshal(s)...)
}

// SetVersion returns a copy of a bare object with another resourceVersion: that of a DELETED
// event is the version of the deletion, which is later than the object's last one. JSON keys
// may change their order.
func SetVersion(e Encoding, bare []byte, resourceVersion string) ([]byte, error) {
	if _, err := Inspect(e, bare); err != nil {
		return nil, err
	}
	if e == Protobuf {
		return setProtoField(bare, objectMetadata, func(meta []byte) ([]byte, error) {
			return setProtoField(meta, objectMetaResourceVersion, func([]byte) ([]byte, error) {
				return []byte(resourceVersion), nil
			})
		})
	}
	return setJSONVersion(bare, resourceVersion)
}

// setProtoField replaces a length-delimited field of a message, and moves it to the end.
func setProtoField(message []byte, tag uint64, replace func([]byte) ([]byte, error)) ([]byte, error) {
	var out, value []byte
	f := fields{rest: message}
	for at := message; f.next(); at = f.rest {
		if f.tag == tag {
			value = f.value
			continue
		}
		out = append(out, at[:len(at)-len(f.rest)]...)
	}
	if f.err != nil {
		return nil, fmt.Errorf("set resourceVersion: %w", f.err)
	}
	value, err := replace(value)
	if err != nil {
		return nil, err
	}
	return appendBytesField(out, byte(tag), value), nil
}

func setJSONVersion(bare []byte, resourceVersion string) ([]byte, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(bare, &object); err != nil {
		return nil, fmt.Errorf("set resourceVersion: %w", ErrMalformed)
	}
	meta := map[string]json.RawMessage{}
	if raw := object["metadata"]; len(raw) > 0 && !bytes.Equal(raw, []byte("null")) {
		if err := json.Unmarshal(raw, &meta); err != nil {
			return nil, fmt.Errorf("set resourceVersion: %w", ErrMalformed)
		}
	}
	meta["resourceVersion"] = mustMarshal(resourceVersion)
	if object == nil {
		object = map[string]json.RawMessage{}
	}
	object["metadata"] = mustMarshal(meta)
	return mustMarshal(object), nil
}
