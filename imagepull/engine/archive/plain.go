package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/containerd/containerd/v2/pkg/archive/compression"

	"github.com/edgehub-io/edgehub/imagepull/engine/diskspace"
	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// pieceSize is how much is copied between two looks at the room, in bytes.
const pieceSize = 4 << 20

// Plain returns a file as Open needs it: from itself if it is not compressed and can be read from the middle, and otherwise
// a copy of what it holds, in a file without name in folder, of which minFree percent stay free. A gigabyte of zeros
// has a megabyte in gzip, so that is looked at all the time. The caller closes what is returned. copied is called with the
// number of bytes so far.
func Plain(ctx context.Context, from *os.File, folder string, minFree int, copied func(int64)) (file *os.File, err error) {
	if info, err := from.Stat(); err != nil {
		return nil, err
	} else if info.Mode().IsRegular() && compressionOf(from) == compression.Uncompressed {
		_, err = from.Seek(0, io.SeekStart)
		return from, err
	}
	plain, err := compression.DecompressStream(from)
	if err != nil {
		return nil, err
	}
	defer func() { _ = plain.Close() }() // only read
	file, err = os.CreateTemp(folder, "edgehub-import-")
	if err != nil {
		return nil, fmt.Errorf("make room for what is in it: %w", err)
	}
	if err = os.Remove(file.Name()); err == nil {
		err = spool(ctx, file, plain, folder, minFree, copied)
	}
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// compressionOf returns how a file is compressed.
func compressionOf(from io.ReaderAt) compression.Compression {
	start := make([]byte, 10)     // as compression.DecompressStream looks at
	n, _ := from.ReadAt(start, 0) // who reads on gets the error
	return compression.DetectCompression(start[:n])
}

func spool(ctx context.Context, to io.Writer, from io.Reader, folder string, minFree int, copied func(int64)) error {
	for sum := int64(0); ; {
		n, err := io.CopyN(to, from, pieceSize)
		sum += n
		copied(sum)
		switch room, _ := diskspace.At(folder); {
		case errors.Is(err, syscall.ENOSPC), room.Total > 0 && room.Available(minFree) < 0:
			return engineapi.Errorf(engineapi.NoSpace, "after %s, %s has too little room, of which %d%% are to stay free; put a tar that is not compressed on the stick, and name it, or set TMPDIR",
				engineapi.Amount(sum), folder, minFree)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil: // by any of three ways of reading, some in another process
			return corrupt("it cannot be read on after %s (%w); it is damaged, or was not copied to its end", engineapi.Amount(sum), err)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
	}
}
