package transform

import (
	"bytes"
	"encoding/json/jsontext"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/edgehub-io/edgehub/cache/wire"
)

// editElements returns a copy of a bare object without the elements of one of its lists that
// keep does not want, and whether there are any. All other bytes stay as they are.
func editElements(e wire.Encoding, bare []byte, list step, keep func(element []byte) (bool, error)) ([]byte, bool, error) {
	switch e {
	case wire.JSON:
		return editJSONElements(bare, list.name, keep)
	case wire.Protobuf:
		return editRepeated(bare, list.field, keep)
	}
	return nil, false, fmt.Errorf("an object in %v cannot be changed", e)
}

func editRepeated(message []byte, field protowire.Number, keep func([]byte) (bool, error)) (out []byte, changed bool, err error) {
	out = make([]byte, 0, len(message))
	for len(message) > 0 {
		number, kind, size := protowire.ConsumeField(message)
		if size < 0 {
			return nil, false, protowire.ParseError(size)
		}
		content := message[:size]
		message = message[size:]
		if number == field {
			if kind != protowire.BytesType {
				return nil, false, errUnexpected
			}
			_, _, tag := protowire.ConsumeTag(content)
			element, _ := protowire.ConsumeBytes(content[tag:])
			ok, err := keep(element)
			if err != nil {
				return nil, false, err
			}
			if !ok {
				changed = true
				continue
			}
		}
		out = append(out, content...)
	}
	return out, changed, nil
}

func editJSONElements(object []byte, list string, keep func([]byte) (bool, error)) (out []byte, changed bool, err error) {
	in := jsontext.NewDecoder(bytes.NewReader(object))
	if token, err := in.ReadToken(); err != nil || token.Kind() != '{' {
		return nil, false, unexpected(err)
	}
	copied := 0
	for in.PeekKind() != '}' {
		key, err := in.ReadToken()
		if err != nil {
			return nil, false, err
		}
		name := key.String()
		value, err := in.ReadValue()
		if err != nil {
			return nil, false, err
		}
		if name != list || value.Kind() == 'n' {
			continue
		}
		end := int(in.InputOffset())
		elements, dropped, err := keepJSON(value, keep)
		if err != nil {
			return nil, false, err
		}
		out = append(out, object[copied:end-len(value)]...)
		out = append(out, elements...)
		copied, changed = end, changed || dropped
	}
	return append(out, object[copied:]...), changed, nil
}

// keepJSON returns a list without the elements that keep does not want.
func keepJSON(list jsontext.Value, keep func([]byte) (bool, error)) (out []byte, dropped bool, err error) {
	in := jsontext.NewDecoder(bytes.NewReader(list))
	if token, err := in.ReadToken(); err != nil || token.Kind() != '[' {
		return nil, false, unexpected(err)
	}
	out = []byte{'['}
	for in.PeekKind() != ']' {
		element, err := in.ReadValue()
		if err != nil {
			return nil, false, err
		}
		ok, err := keep(element)
		if err != nil {
			return nil, false, err
		}
		if !ok {
			dropped = true
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, element...)
	}
	return append(out, ']'), dropped, nil
}

// unexpected is the error for a value that could not be read, or is not what the API defines.
func unexpected(err error) error {
	if err != nil {
		return err
	}
	return errUnexpected
}

// texts returns the texts in some fields of a message or JSON object; "" where there is none.
func texts(e wire.Encoding, object []byte, fields ...step) ([]string, error) {
	out := make([]string, len(fields))
	for i, field := range fields {
		_, err := edit(e, object, []step{field}, func(v value) value {
			out[i] = v.text
			return v
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}
