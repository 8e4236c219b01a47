package seal

import "encoding/binary"

// AppendBytes appends v behind its length. Payloads are made of such, and of unsigned varints.
func AppendBytes[T string | []byte](b []byte, v T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

// Fields takes a payload apart. After an error all it returns is zero.
type Fields struct {
	Rest []byte // what is still to come
	Err  error  // ErrShort
}

// Uint returns the unsigned varint that is next.
func (r *Fields) Uint() uint64 {
	v, n := binary.Uvarint(r.Rest)
	if n <= 0 {
		r.Rest, r.Err = nil, ErrShort
		return 0
	}
	r.Rest = r.Rest[n:]
	return v
}

// Bytes returns the bytes behind the length that is next: a part of Rest.
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

// Copied is Bytes that outlive the transaction.
func (r *Fields) Copied() []byte {
	if v := r.Bytes(); len(v) > 0 {
		return append([]byte(nil), v...)
	}
	return nil
}
