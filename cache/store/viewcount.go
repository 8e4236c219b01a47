package store

import (
	"encoding/binary"

	bolt "go.etcd.io/bbolt"

	"github.com/edgehub-io/edgehub/cache/store/seal"
)

// viewCount is how many views there are, and a digest of their IDs: it tells when
// one has gone that nobody dropped.
type viewCount struct {
	views  int
	digest digest
}

func (r viewCount) encode() []byte {
	return binary.AppendUvarint(binary.AppendUvarint(nil, uint64(r.views)), uint64(r.digest))
}

func (r *viewCount) add(id ID) {
	r.views++
	r.digest.add(string(id[:]))
}

func (r *viewCount) remove(id ID) {
	r.views--
	r.digest.remove(string(id[:]))
}

func (c codec) viewCount(tx *bolt.Tx) (viewCount, error) {
	payload, err := c.meta(tx, keyViews)
	if err != nil {
		return viewCount{}, err
	}
	r := seal.Fields{Rest: payload}
	return viewCount{views: int(r.Uint()), digest: digest(r.Uint())}, r.Err
}
