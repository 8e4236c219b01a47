package wire

import (
	"fmt"
	"iter"
)

func inspectJSON(object []byte) (meta Meta, err error) {
	s := newScanner(object)
	defer s.Release()
	readObject(s, &meta)
	s.End()
	if s.Err == nil {
		s.Err = checkDepth(object)
	}
	if s.Err != nil {
		return Meta{}, fmt.Errorf("inspect object: %w", s.Err)
	}
	return meta, nil
}

// readObject checks an object and reads its metadata, in one pass.
func readObject(s *scanner, meta *Meta) {
	meta.encoding = JSON
	var seen uint8
	for key := range s.Members() {
		switch string(key) {
		case "apiVersion":
			s.Once(&seen, 1<<0)
			meta.APIVersion = s.Text()
		case "kind":
			s.Once(&seen, 1<<1)
			meta.Kind = s.Text()
		case "metadata":
			s.Once(&seen, 1<<2)
			readObjectMeta(s, meta)
		default:
			s.Value()
		}
	}
}

func readObjectMeta(s *scanner, meta *Meta) {
	if s.Kind() == 'n' { // decoders leave it empty
		s.Value()
		return
	}
	var seen uint8
	for key := range s.Members() {
		switch string(key) {
		case "name":
			s.Once(&seen, 1<<0)
			meta.Name = s.Text()
		case "namespace":
			s.Once(&seen, 1<<1)
			meta.Namespace = s.Text()
		case "uid":
			s.Once(&seen, 1<<2)
			meta.UID = s.Text()
		case "resourceVersion":
			s.Once(&seen, 1<<3)
			meta.ResourceVersion = s.Text()
		case "labels":
			s.Once(&seen, 1<<4)
			meta.labels = s.Value()
		case "annotations":
			s.Once(&seen, 1<<5)
			meta.annotations = s.Value()
		default:
			s.Value()
		}
	}
}

// jsonMapEntries yields the members of an object whose values are strings.
func jsonMapEntries(object []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		if len(object) == 0 || object[0] != '{' {
			return
		}
		s := newScanner(object)
		defer s.Release()
		for key := range s.Members() {
			if value := s.Text(); s.Err != nil || !yield(key, value) {
				return
			}
		}
	}
}
