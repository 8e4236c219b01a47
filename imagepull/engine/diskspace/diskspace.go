// Package diskspace is how much room file systems have for images, as seen from this
// process.
package diskspace

import (
	"fmt"
	"math"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// InodesFree is how many percent of a file system's inodes a pull leaves free: where
// kubelet begins to evict pods (imagefs.inodesFree).
const InodesFree = 5

// Space is how a file system stands, in bytes and inodes.
type Space struct {
	ID                  [2]int32 // the same for folders of one file system
	Free, Total         int64
	Inodes, TotalInodes int64 // free ones, and all; none where there is no limit
}

// Available is what may be used if percent of all has to stay free.
func (r Space) Available(percent int) int64 { return r.Free - r.Total/100*int64(percent) }

// AvailableInodes is what may be used if InodesFree percent of all have to stay free.
func (r Space) AvailableInodes() int64 {
	if r.TotalInodes == 0 {
		return math.MaxInt64
	}
	return r.Inodes - r.TotalInodes/100*InodesFree
}

// Fits fails if folder has no room for need bytes.
func Fits(folder string, r Space, need int64, percent int) error {
	if need <= r.Available(percent) {
		return nil
	}
	spared := ""
	if percent > 0 {
		spared = fmt.Sprintf(", and %d%% of %s are to stay free", percent, engineapi.Amount(r.Total))
	}
	return engineapi.Errorf(engineapi.NoSpace, "it needs about %s at %s, where %s are free%s; remove what is not needed on the node, images or logs, or give it more room",
		engineapi.Amount(need), folder, engineapi.Amount(r.Free), spared)
}
