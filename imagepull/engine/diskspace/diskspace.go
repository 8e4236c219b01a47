// Package diskspace measures the space that file systems have for images.
package diskspace

import (
	"fmt"
	"math"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// InodesFree is the percentage of a file system's inodes that a pull leaves free. With less, the
// kubelet evicts pods (imagefs.inodesFree).
const InodesFree = 5

// Space is the space of a file system, in bytes and inodes.
type Space struct {
	ID                  [2]int32 // of the file system
	Free, Total         int64
	Inodes, TotalInodes int64 // free and all; 0 if there is no limit
}

// Available returns how many bytes may be used if percent of all must stay free.
func (r Space) Available(percent int) int64 { return r.Free - r.Total/100*int64(percent) }

// AvailableInodes returns how many inodes may be used if InodesFree percent of all must stay free.
func (r Space) AvailableInodes() int64 {
	if r.TotalInodes == 0 {
		return math.MaxInt64
	}
	return r.Inodes - r.TotalInodes/100*InodesFree
}

// Fits fails with NoSpace if folder has no space for need bytes.
func Fits(folder string, r Space, need int64, percent int) error {
	if need <= r.Available(percent) {
		return nil
	}
	spared := ""
	if percent > 0 {
		spared = fmt.Sprintf(", and %d%% of %s are to stay free", percent, engineapi.Amount(r.Total))
	}
	return engineapi.Errorf(engineapi.NoSpace, "it needs at least %s at %s, where %s are free%s; remove what is not needed on the node, images or logs, or give it more room",
		engineapi.Amount(need), folder, engineapi.Amount(r.Free), spared)
}
