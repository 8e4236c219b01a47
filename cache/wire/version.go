package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// SetVersion returns a copy of a bare object that is at another resourceVersion:
// an apiserver says in a DELETED event at which version the object went, which is
// later than the one it was last seen at. JSON may come out with its keys in
// another order.
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

// setProtoField replaces the value of a length-delimited field of a message, and
// puts it at the end.
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
