package cri

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// logBlock is how much of a log is read at a time, in bytes. Longer lines are copied in parts, so
// memory is bounded whatever the file has.
const logBlock = 64 << 10

// logFile is the log of a container in CRI's format: a line has the time, the stream, a tag and
// what the app wrote. k8s.io/cri-client/pkg/logs reads the same, but when kubelet rotates the file while
// the reader of the output pauses (less), it follows the old one for ever; it needs an inotify instance,
// of which root may have none left; and after a rotation it opens whatever is at the path, a link to
// another file or a pipe, at which it waits for ever.
type logFile struct {
	path   string
	file   *os.File
	reader *bufio.Reader
	// at is the offset of what has not been copied.
	at int64
	// inLine: at is within a line, whose parts are copied if it is shown, and joined with the
	// next line if it is partial.
	inLine, shown, partial bool
	// since is the time before which lines are not shown.
	since time.Time
	// strange counts lines in another format, which are left out.
	strange int
}

// openLog opens the log at path, FOLDER/POD/CONTAINER/N.log. A pod with a hostPath below /var/log may
// have put something else there, to have root read it: symbolic links, also of folders below FOLDER,
// which may itself be one, pipes and devices are refused, and of another file, which a hard link
// may reach, no line has the format. What is read goes to root's own terminal only.
func openLog(path string) (*logFile, error) {
	file, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	return &logFile{path: path, file: file, reader: bufio.NewReaderSize(file, logBlock)}, nil
}

func openRegular(path string) (*os.File, error) {
	folder := filepath.Dir(filepath.Dir(filepath.Dir(path)))
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, unreadable(path, err)
	}
	defer root.Close()
	name, err := filepath.Rel(folder, path)
	if err != nil {
		return nil, err
	}
	// A device is not even opened, and a pipe not waited for.
	if info, err := root.Lstat(name); err != nil || !info.Mode().IsRegular() {
		return nil, unreadable(path, err)
	}
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, unreadable(path, err)
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(unreadable(path, err), file.Close())
	}
	return file, nil
}

// unreadable returns why the log at path is not read; nil for err: it is no file.
func unreadable(path string, err error) error {
	switch {
	case err == nil:
		return fmt.Errorf("log %s is no file, as containerd writes it, but a link, pipe or device: look who has put it there", path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("permission denied: log %s is for root; use sudo", path)
	}
	return fmt.Errorf("open log %s: %w", path, err)
}

// close ends reading.
func (l *logFile) close() { _ = l.file.Close() } // nothing was written

// skipTo has copy begin with the last lines.
func (l *logFile) skipTo(lines int64) error {
	info, err := l.file.Stat()
	if err != nil {
		return err
	}
	at, err := tailStart(l.file, info.Size(), lines)
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	return l.seek(at)
}

func (l *logFile) seek(at int64) error {
	l.at = at
	l.reader.Reset(l.file)
	_, err := l.file.Seek(at, io.SeekStart)
	return err
}

// tailStart returns where the last lines of a file begin. A last line without its end is none.
func tailStart(file io.ReaderAt, size, lines int64) (int64, error) {
	block := make([]byte, logBlock)
	for end := size; end > 0; {
		start := max(0, end-logBlock)
		part := block[:end-start]
		if _, err := file.ReadAt(part, start); err != nil {
			return 0, err
		}
		for i := len(part) - 1; i >= 0; i-- {
			if part[i] != '\n' {
				continue
			}
			if lines == 0 {
				return start + int64(i) + 1, nil
			}
			lines--
		}
		end = start
	}
	return 0, nil
}

// copy writes what the app wrote to out, up to the end of the last whole line. It goes on in the
// next file if kubelet has rotated this one.
func (l *logFile) copy(out io.Writer) error {
	for {
		if err := l.copyFile(out); err != nil {
			return err
		}
		rotated, err := l.rotated()
		if err != nil || !rotated {
			return err
		}
		// The last lines may have been written between the end of copyFile and the rotation.
		if err := l.copyFile(out); err != nil {
			return err
		}
		next, err := openLog(l.path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the container is being removed
		}
		if err != nil {
			return err
		}
		l.goOnIn(next)
	}
}

// goOnIn closes l, which becomes next.
func (l *logFile) goOnIn(next *logFile) {
	l.close()
	next.strange, next.since = l.strange, l.since
	*l = *next
}

// rotated reports whether path is another file by now.
func (l *logFile) rotated() (bool, error) {
	now, err := os.Lstat(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // it is being rotated, or removed
	}
	if err != nil {
		return false, err
	}
	mine, err := l.file.Stat()
	return err == nil && !os.SameFile(now, mine), err
}

func (l *logFile) copyFile(out io.Writer) error {
	for {
		part, err := l.reader.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF):
			return l.seek(l.at) // what has no end yet is read again
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return fmt.Errorf("read the log: %w", err)
		}
		l.at += int64(len(part))
		if _, err := out.Write(l.text(part)); err != nil {
			return err
		}
	}
}

// text returns what the app wrote of a line, or of a part of one.
func (l *logFile) text(part []byte) []byte {
	ends := bytes.HasSuffix(part, []byte("\n"))
	if !l.inLine {
		var written time.Time
		var isLog bool
		written, part, l.partial, isLog = head(part)
		if !isLog {
			l.strange++
		}
		l.shown = isLog && !written.Before(l.since)
	}
	l.inLine = !ends
	switch {
	case !l.shown:
		return nil
	case ends && l.partial:
		return bytes.TrimSuffix(part, []byte("\n"))
	}
	return part
}

// head splits a line into when it was written and the text, and returns whether the next line goes on
// with it. ok is false for a line in another format.
func head(line []byte) (written time.Time, text []byte, partial, ok bool) {
	stamp, rest, _ := bytes.Cut(line, []byte(" "))
	written, err := time.Parse(time.RFC3339Nano, string(stamp))
	stream, rest, _ := bytes.Cut(rest, []byte(" "))
	tags, text, ok := bytes.Cut(rest, []byte(" "))
	if s := runtimeapi.LogStreamType(stream); err != nil || s != runtimeapi.Stdout && s != runtimeapi.Stderr {
		return time.Time{}, nil, false, false
	}
	tag, _, _ := bytes.Cut(tags, []byte(runtimeapi.LogTagDelimiter))
	return written, text, string(tag) == string(runtimeapi.LogTagPartial), ok
}
