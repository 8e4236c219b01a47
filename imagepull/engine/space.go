package engine

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// unpackedFactor is how much room a layer is taken to need unpacked, for each byte
// compressed. All layers on Docker Hub in 2017 were 47 TB compressed and 167 TB
// unpacked, 3.5 for one (N. Zhao et al., "Large-Scale Analysis of the Docker Hub
// Dataset", IEEE CLUSTER 2019).
const unpackedFactor = 3.5

// room is how a file system stands, in bytes.
type room struct {
	id          [2]int32 // the same for folders of one file system
	free, total int64
}

// spare is what may be used if percent of all has to stay free.
func (r room) spare(percent int) int64 { return r.free - r.total/100*int64(percent) }

// checkSpace fails with NoSpace if what is missing of an image will not fit. Where
// containerd's folders cannot be looked at from here, it is left to containerd.
func (e *Engine) checkSpace(ctx context.Context, n node, p parts, unpacked int) error {
	fetched, err := e.toFetch(ctx, p, unpacked)
	if err != nil {
		return err
	}
	taken := toUnpack(p.layers[unpacked:])
	if fetched+taken == 0 {
		return nil
	}
	content, err := e.roomAt(ctx, n.content)
	if err != nil {
		e.log.Info("room on disk cannot be looked at; the pull is tried without", "folder", n.content, "err", err)
		return nil
	}
	snapshots, err := e.roomAt(ctx, n.snapshots)
	if err != nil {
		e.log.Info("room on disk cannot be looked at; the pull is tried without", "folder", n.snapshots, "err", err)
		return nil
	}
	if content.id == snapshots.id {
		return fits(n.content, content, fetched+taken, e.opts.MinFree)
	}
	if err := fits(n.content, content, fetched, e.opts.MinFree); err != nil {
		return err
	}
	return fits(n.snapshots, snapshots, taken, e.opts.MinFree)
}

// fits fails if folder has no room for need bytes.
func fits(folder string, r room, need int64, percent int) error {
	if need <= r.spare(percent) {
		return nil
	}
	spared := ""
	if percent > 0 {
		spared = fmt.Sprintf(", and %d%% of %s are to stay free", percent, amount(r.total))
	}
	return errorf(NoSpace, "it needs about %s at %s, where %s are free%s; remove what is not needed on the node, images or logs, or give it more room",
		amount(need), folder, amount(r.free), spared)
}

// toFetch sums up the bytes of the image that are not here, half of a blob included.
func (e *Engine) toFetch(ctx context.Context, p parts, unpacked int) (int64, error) {
	var m meter
	m.expect(append(p.others, p.layers[unpacked:]...))
	for _, blob := range append(p.others, p.layers[unpacked:]...) {
		there, err := e.there(ctx, blob)
		if err != nil {
			return 0, err
		}
		m.set(blob, there)
	}
	return m.sum.Total - m.sum.Done, nil
}

// there is how many bytes of a blob are here.
func (e *Engine) there(ctx context.Context, blob ocispec.Descriptor) (int64, error) {
	switch err := e.look(ctx, blob); {
	case err == nil:
		return blob.Size, nil
	case !errdefs.IsNotFound(err):
		return 0, err
	}
	s, err := e.store().Status(ctx, ingestRef(blob))
	if err != nil {
		return 0, unlessNotFound(err)
	}
	return min(s.Offset, blob.Size), nil
}

func toUnpack(layers []ocispec.Descriptor) int64 {
	sum := 0.0
	for _, l := range layers {
		sum += float64(l.Size) * unpackedFactor
	}
	return int64(sum)
}

// amount is a number of bytes for people.
func amount(n int64) string {
	const unit = 1000
	value, i := float64(n), 0
	names := []string{"B", "kB", "MB", "GB", "TB"}
	for ; value >= unit && i < len(names)-1; i++ {
		value /= unit
	}
	if i == 0 || value >= 10 {
		return fmt.Sprintf("%.0f %s", value, names[i])
	}
	return fmt.Sprintf("%.1f %s", value, names[i])
}
