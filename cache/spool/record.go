package spool

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/edgehub-io/edgehub/cache/wire"
)

// record is an event on disk: a version, the length of the head as a varint, the head as JSON,
// and the event as bare protobuf.
type record struct {
	head
	bare []byte
}

type head struct {
	owner
	APIVersion string `json:"apiVersion"`
	Namespace  string `json:"namespace"`
	Name       string `json:"eventName"`
	UserAgent  string `json:"userAgent,omitempty"`
}

const recordVersion = 1

func (h *head) name() string { return h.Namespace + "/" + h.Name }

func (h *head) typeMeta() wire.TypeMeta {
	return wire.TypeMeta{APIVersion: h.APIVersion, Kind: "Event"}
}

func (r *record) bytes() ([]byte, error) {
	head, err := json.Marshal(r.head)
	if err != nil {
		return nil, fmt.Errorf("spool event %s: %w", r.name(), err)
	}
	b := binary.AppendUvarint([]byte{recordVersion}, uint64(len(head)))
	return append(append(b, head...), r.bare...), nil
}

// parse reads what bytes wrote. The event points into b.
func parse(b []byte) (r record, err error) {
	if len(b) == 0 || b[0] != recordVersion {
		return record{}, fmt.Errorf("read a spooled event: %w", wire.ErrMalformed)
	}
	length, n := binary.Uvarint(b[1:])
	if n <= 0 || length > uint64(len(b)-1-n) {
		return record{}, fmt.Errorf("read a spooled event: %w", wire.ErrTruncated)
	}
	start := 1 + n
	end := start + int(length)
	if err := json.Unmarshal(b[start:end], &r.head); err != nil {
		return record{}, fmt.Errorf("read a spooled event: %w: %w", wire.ErrMalformed, err)
	}
	r.bare = b[end:]
	return r, nil
}

// key orders events by arrival. It reveals only their number.
func key(number uint64) string { return fmt.Sprintf("%016x", number) }

func parseKey(key string) (uint64, error) { return strconv.ParseUint(key, 16, 64) }
