package seal

import "encoding/binary"

// AppendBytes appends the length of v, and v. Payloads consist of these and of unsigned varints.
func AppendBytes[T string | []byte](b []byte, v T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

// Fields reads the fields of a payload. After an error all further fields are zero.
type Fields struct {
	Rest []byte // not read yet
	Err  error  // ErrShort
}

// Uint returns the next field, an unsigned varint.
func (r *Fields) Uint() uint64 {
	v, n := binary.Uvarint(r.Rest)
	if n <= 0 {
		r.Rest, r.Err = nil, ErrShort
		return 0
	}
	r.Rest = r.Rest[n:]
	return v
}

// Bytes returns the next field, a length and bytes: a part of Rest.
func (r *Fields) Bytes() []byte {
	n := r.Uint()
	if n > uint64(len(r.Rest)) {
		r.Rest, r.Err = nil, ErrShort
		return nil
	}
	v := r.Rest[:n:n]
	r.Rest = r.Rest[n:]
	return v
}

// Copied returns a copy of Bytes, which outlives the transaction.
func (r *Fields) Copied() []byte {
	if v := r.Bytes(); len(v) > 0 {
		return append([]byte(nil), v...)
	}
	return nil
}
