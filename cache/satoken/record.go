package satoken

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/edgehub-io/edgehub/cache/wire"
)

// record is what lies on disk of one token: a version, when it was last used (Unix
// seconds, 8 bytes), and the answer as bare protobuf.
type record struct {
	used time.Time
	bare []byte
}

const (
	recordVersion = 1
	recordHeader  = 1 + 8
)

func (r *record) bytes() []byte {
	b := make([]byte, 0, recordHeader+len(r.bare))
	b = append(b, recordVersion)
	b = binary.BigEndian.AppendUint64(b, uint64(r.used.Unix()))
	return append(b, r.bare...)
}

// parse copies nothing.
func parse(b []byte) (record, error) {
	if len(b) < recordHeader || b[0] != recordVersion {
		return record{}, fmt.Errorf("read a kept token: %w", wire.ErrMalformed)
	}
	used := int64(binary.BigEndian.Uint64(b[1:recordHeader]))
	return record{used: time.Unix(used, 0), bare: b[recordHeader:]}, nil
}
