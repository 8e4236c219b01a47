package log

import "encoding/binary"

// appendBytes appends the length of v, and v. The payloads of the log consist of these and of unsigned varints.
func appendBytes[T string | []byte](b []byte, v T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

// fields reads the fields of a payload. After an error all further fields are zero.
type fields struct {
	Rest []byte // not read yet
	Err  error  // errShort
}

// Uint returns the next field, an unsigned varint.
func (r *fields) Uint() uint64 {
	v, n := binary.Uvarint(r.Rest)
	if n <= 0 {
		r.Rest, r.Err = nil, errShort
		return 0
	}
	r.Rest = r.Rest[n:]
	return v
}

// Bytes returns the next field, a length and bytes: a part of Rest.
func (r *fields) Bytes() []byte {
	return r.Take(r.Count())
}

// Take returns the next n bytes: a part of Rest.
func (r *fields) Take(n int) []byte {
	if n > len(r.Rest) {
		r.Rest, r.Err = nil, errShort
		return nil
	}
	v := r.Rest[:n:n]
	r.Rest = r.Rest[n:]
	return v
}

// Byte returns the next byte.
func (r *fields) Byte() byte {
	if b := r.Take(1); b != nil {
		return b[0]
	}
	return 0
}

// Count returns the number of elements that follow, each of a byte or more. After an error it is 0.
func (r *fields) Count() int {
	n := r.Uint()
	if n > uint64(len(r.Rest)) {
		r.Rest, r.Err = nil, errShort
		return 0
	}
	return int(n)
}
