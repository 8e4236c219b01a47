package transform

import (
	"bytes"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/edgehub-io/edgehub/cache/wire"
)

// step leads from a value to values in it.
type step struct {
	name  string           // the key in JSON
	field protowire.Number // the field in protobuf; 0 for an entry of a map of strings, each of them without a name
	each  bool             // the values are the elements of a list
	whole bool             // of a path's last step: the values are messages, or JSON objects
}

// value is a string or a number, or a message or JSON object as it is encoded.
type value struct {
	text   string
	number int64
}

// errUnexpected is returned for a value of another type than the API defines.
var errUnexpected = errors.New("a value of an unexpected type")

// edit returns a copy of a bare object in which f has replaced the values to which path
// leads, if there are any. All other bytes stay as they are.
func edit(e wire.Encoding, bare []byte, path []step, f func(value) value) ([]byte, error) {
	switch e {
	case wire.JSON:
		return editJSON(bare, path, f)
	case wire.Protobuf:
		return editMessage(bare, path, f)
	}
	return nil, fmt.Errorf("an object in %v cannot be changed", e)
}

// editMessage edits a protobuf message. A field that occurs several times is edited each time.
func editMessage(message []byte, path []step, f func(value) value) ([]byte, error) {
	out := make([]byte, 0, len(message)+64)
	for len(message) > 0 {
		number, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return nil, protowire.ParseError(size)
		}
		rest := protowire.ConsumeFieldValue(number, kind, message[size:])
		if rest < 0 {
			return nil, protowire.ParseError(rest)
		}
		field, content := message[:size+rest], message[size:size+rest]
		message = message[size+rest:]
		if number != path[0].field {
			out = append(out, field...)
			continue
		}
		edited, err := editField(kind, content, path[1:], f)
		if err != nil {
			return nil, err
		}
		out = append(protowire.AppendTag(out, number, kind), edited...)
	}
	return out, nil
}

// editField edits the value of a protobuf field. A map is a list of entries, with their key in
// field 1 and their value in field 2.
func editField(kind protowire.Type, content []byte, path []step, f func(value) value) ([]byte, error) {
	switch {
	case len(path) == 0 && kind == protowire.VarintType:
		n, _ := protowire.ConsumeVarint(content)
		return protowire.AppendVarint(nil, uint64(f(value{number: int64(n)}).number)), nil
	case kind != protowire.BytesType:
		return nil, errUnexpected
	}
	inner, _ := protowire.ConsumeBytes(content)
	if len(path) == 0 {
		return protowire.AppendString(nil, f(value{text: string(inner)}).text), nil
	}
	if path[0].field == 0 {
		if path[0].name != "" && mapKey(inner) != path[0].name {
			return content, nil
		}
		path = append([]step{{field: 2}}, path[1:]...)
	}
	edited, err := editMessage(inner, path, f)
	return protowire.AppendBytes(nil, edited), err
}

// mapKey returns the key of a map's entry, or "".
func mapKey(entry []byte) (key string) {
	for len(entry) > 0 {
		number, kind, size := protowire.ConsumeField(entry)
		_ = kind
		if size < 0 {
			return key
		}
		if number == 1 {
			_, _, tag := protowire.ConsumeTag(entry)
			key, _ = protowire.ConsumeString(entry[tag:])
		}
		entry = entry[size:]
	}
	return key
}

// editJSON edits a JSON object.
func editJSON(object []byte, path []step, f func(value) value) ([]byte, error) {
	in := jsontext.NewDecoder(bytes.NewReader(object))
	var out []byte
	copied := 0
	whole := path[len(path)-1].whole
	err := walkJSON(in, path, func(raw jsontext.Value) error {
		v, err := parseJSON(raw, whole)
		if err != nil {
			return err
		}
		end := int(in.InputOffset())
		out = append(out, object[copied:end-len(raw)]...)
		out = appendJSON(out, raw.Kind(), f(v))
		copied = end
		return nil
	})
	if err != nil {
		return nil, err
	}
	return append(out, object[copied:]...), nil
}

// walkJSON reads one value and calls found for each value to which path leads, right after
// that has been read. null is no value.
func walkJSON(in *jsontext.Decoder, path []step, found func(jsontext.Value) error) error {
	if in.PeekKind() == 'n' {
		return in.SkipValue()
	}
	if len(path) == 0 {
		raw, err := in.ReadValue()
		if err != nil {
			return err
		}
		return found(raw)
	}
	if in.PeekKind() != '{' {
		return errUnexpected
	}
	if _, err := in.ReadToken(); err != nil {
		return err
	}
	for in.PeekKind() != '}' {
		key, err := in.ReadToken()
		if err != nil {
			return err
		}
		switch {
		case path[0].name != "" && key.String() != path[0].name:
			err = in.SkipValue()
		case path[0].each:
			err = walkElements(in, path[1:], found)
		default:
			err = walkJSON(in, path[1:], found)
		}
		if err != nil {
			return err
		}
	}
	_, err := in.ReadToken()
	return err
}

// walkElements is walkJSON for each element of a list.
func walkElements(in *jsontext.Decoder, path []step, found func(jsontext.Value) error) error {
	if in.PeekKind() == 'n' {
		return in.SkipValue()
	}
	if in.PeekKind() != '[' {
		return errUnexpected
	}
	if _, err := in.ReadToken(); err != nil {
		return err
	}
	for in.PeekKind() != ']' {
		if err := walkJSON(in, path, found); err != nil {
			return err
		}
	}
	_, err := in.ReadToken()
	return err
}

func parseJSON(raw jsontext.Value, whole bool) (value, error) {
	switch kind := raw.Kind(); {
	case whole && kind == '{':
		return value{text: string(raw)}, nil
	case whole:
	case kind == '"':
		text, err := jsontext.AppendUnquote(nil, raw)
		return value{text: string(text)}, err
	case kind == '0':
		number, err := strconv.ParseInt(string(raw), 10, 64)
		return value{number: number}, err
	}
	return value{}, errUnexpected
}

func appendJSON(out []byte, kind jsontext.Kind, v value) []byte {
	switch kind {
	case '0':
		return strconv.AppendInt(out, v.number, 10)
	case '{':
		return append(out, v.text...)
	}
	out, _ = jsontext.AppendQuote(out, v.text) // fails only for invalid UTF-8, which it replaces
	return out
}
