// Package mapping is about the memory map of a file.
package mapping

import (
	"os"

	"golang.org/x/sys/unix"
)

// Release has the process give up the pages of a file's memory map that it has looked at: they count as its
// memory, though the kernel has them of the file anyway. The map begins at address, must have size bytes or
// more, and must not be ended meanwhile; it may be read.
func Release(address uintptr, size int64) error {
	if _, _, errno := unix.Syscall(unix.SYS_MADVISE, address, uintptr(size), unix.MADV_DONTNEED); errno != 0 {
		return os.NewSyscallError("madvise", errno)
	}
	return nil
}
