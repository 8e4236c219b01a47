package cache

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/spool"
	"github.com/edgehub-io/edgehub/cache/store"
)

// Retire prepares the cache in a folder, which nobody has open, for being set aside: it belongs to another cluster or node.
// Secrets are erased, and so is all that is not an object: tokens, answers to reviews, and Events, of which it returns how many
// waited. What cannot be read, or not be written anew, is erased as a whole. Its errors are store.ErrLocked, and those of a folder
// that cannot be written.
func Retire(dir string, key []byte, log *slog.Logger) (events int, err error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	s, err := store.Open(dir, store.Options{Key: key, Logger: log})
	if errors.Is(err, store.ErrLocked) {
		return 0, fmt.Errorf("retire cache: %w", err)
	}
	if err == nil {
		waiting, _ := s.Keys(spool.Table) // none, if the table is damaged
		events = len(waiting)
		err = errors.Join(s.Purge(outlivesCluster, func(store.Pair) bool { return false }), s.Close())
	}
	if err != nil {
		log.Warn("the cache cannot be rid of its Secrets; all of it is erased", "folder", dir, "err", err)
		err = store.Erase(dir)
	}
	return events, err
}

// outlivesCluster reports whether a view may be kept for a person to look at.
func outlivesCluster(v store.View) bool {
	var key query.Key
	return json.Unmarshal(v.Key, &key) == nil && key.GVR().GroupResource() != secretsResource
}
