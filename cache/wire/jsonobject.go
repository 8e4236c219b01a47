package wire

import (
	"fmt"
	"iter"

	"github.com/edgehub-io/edgehub/cache/wire/jsonscan"
)

func inspectJSON(object []byte) (Meta, error) {
	m, end, err := scanObject(object, jsonscan.SkipSpace(object, 0))
	if err != nil {
		return Meta{}, fmt.Errorf("inspect object: %w", err)
	}
	if end = jsonscan.SkipSpace(object, end); end != len(object) {
		return Meta{}, fmt.Errorf("inspect object: %w", jsonscan.Unexpected(object, end))
	}
	return m, nil
}

// scanObject checks the object that begins at b[i] and returns its metadata and its end,
// in one pass.
func scanObject(b []byte, i int) (meta Meta, end int, err error) {
	meta.encoding = JSON
	var seen uint8
	o := jsonscan.MembersAt(b, i)
	for o.Next() {
		switch string(o.Key) {
		case "apiVersion":
			o.Once(&seen, 1<<0)
			meta.APIVersion = o.Text()
		case "kind":
			o.Once(&seen, 1<<1)
			meta.Kind = o.Text()
		case "metadata":
			o.Once(&seen, 1<<2)
			readMetadata(&o, &meta)
		default:
			o.Skip()
		}
	}
	return meta, o.Pos, o.Err
}

// metadata reads a value that has to be an ObjectMeta.
func readMetadata(m *jsonscan.Members, meta *Meta) {
	if m.Err != nil {
		return
	}
	if m.Pos < len(m.Data) && m.Data[m.Pos] == 'n' {
		m.Skip() // null: decoders leave it empty
		return
	}
	var seen uint8
	o := jsonscan.MembersAt(m.Data, m.Pos)
	for o.Next() {
		switch string(o.Key) {
		case "name":
			o.Once(&seen, 1<<0)
			meta.Name = o.Text()
		case "namespace":
			o.Once(&seen, 1<<1)
			meta.Namespace = o.Text()
		case "uid":
			o.Once(&seen, 1<<2)
			meta.UID = o.Text()
		case "resourceVersion":
			o.Once(&seen, 1<<3)
			meta.ResourceVersion = o.Text()
		case "labels":
			o.Once(&seen, 1<<4)
			meta.labels = o.Skip()
		case "annotations":
			o.Once(&seen, 1<<5)
			meta.annotations = o.Skip()
		default:
			o.Skip()
		}
	}
	m.Pos, m.Err = o.Pos, o.Err
}

// jsonMapEntries yields the members of an object whose values are strings.
func jsonMapEntries(object []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		if len(object) == 0 || object[0] != '{' {
			return
		}
		for m := jsonscan.MembersAt(object, 0); m.Next(); {
			key := jsonscan.ValidText(m.Key)
			if value := m.Text(); m.Err != nil || !yield(key, value) {
				return
			}
		}
	}
}
