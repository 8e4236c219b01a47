package engine

import "fmt"

// sizeLabel is the label of a layer's blob that records, for later pulls, how much room the
// layer takes unpacked at least. containerd removes it with the blob.
const sizeLabel = "edgehub.io/unpacked-at-least"

// size is what a layer takes unpacked.
type size struct{ bytes, inodes int64 }

func (s size) String() string { return fmt.Sprintf("%d %d", s.bytes, s.inodes) }

// readSize is nothing for what String has not written.
func readSize(label string) size {
	var s size
	if _, err := fmt.Sscanf(label, "%d %d", &s.bytes, &s.inodes); err != nil || s.bytes < 0 || s.inodes < 0 {
		return size{}
	}
	return s
}
