package satoken

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/edgehub-io/edgehub/cache/wire"
)

// record is a token on disk: a version, the time of last use (Unix seconds, 8 bytes), the
// user it was issued to (the length as a varint, and the user key), and the answer as
// bare protobuf.
type record struct {
	used time.Time
	user string
	bare []byte
}

const (
	// recordUserless is the version of records that do not name a user. They share one
	// quota until they are used again.
	recordUserless = 1
	recordVersion  = 2
	recordHeader   = 1 + 8
)

func (r *record) bytes() []byte {
	b := make([]byte, 0, recordHeader+binary.MaxVarintLen64+len(r.user)+len(r.bare))
	b = append(b, recordVersion)
	b = binary.BigEndian.AppendUint64(b, uint64(r.used.Unix()))
	b = binary.AppendUvarint(b, uint64(len(r.user)))
	return append(append(b, r.user...), r.bare...)
}

var errRecord = fmt.Errorf("read a kept token: %w", wire.ErrMalformed)

// parse decodes a record, whose bare is a part of b.
func parse(b []byte) (record, error) {
	if len(b) < recordHeader {
		return record{}, errRecord
	}
	r := record{used: time.Unix(int64(binary.BigEndian.Uint64(b[1:recordHeader])), 0), bare: b[recordHeader:]}
	switch b[0] {
	case recordUserless:
		return r, nil
	case recordVersion:
	default:
		return record{}, errRecord
	}
	length, n := binary.Uvarint(r.bare)
	if n <= 0 || length > uint64(len(r.bare)-n) {
		return record{}, errRecord
	}
	end := n + int(length)
	r.user, r.bare = string(r.bare[n:end]), r.bare[end:]
	return r, nil
}
