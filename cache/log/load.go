package log

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
)

// load opens the file, and applies it to the owner's state and to tables; or, if replay is false, only what
// Options.Keep names. Then, or if there is no file, one is written from memory. readOnly is why nothing can be written,
// or nil. l.write must be held.
func (l *Log) load(replay bool, readOnly error) error {
	if readOnly == nil { // only the owner knows that nobody is writing it
		if err := l.dir.remove(fileNewLog); err != nil {
			return err
		}
	}
	f, cause, err := l.openFile(readOnly != nil)
	if err != nil {
		return err
	}
	if f == nil {
		return l.begin(replay, cause, readOnly)
	}
	r := &loader{Log: l, file: f, all: replay, tables: map[string]map[string]value{}}
	if err := r.replay(); err != nil {
		f.os.Close()
		return err
	}
	if readOnly == nil {
		if err := cut(f.os, f.end); err != nil {
			f.os.Close()
			return err
		}
		// A hub that was killed may not have synced what it has written, and clients will see it now.
		l.broken = l.sync(f.os) != nil
	}
	if !replay { // it is written from memory with the next commit, and until then stays as it is
		l.broken = true
		wake(l.dirty)
	}
	l.use(r)
	return nil
}

// begin writes the first file. cause is why an earlier one was not read. l.write must be held.
func (l *Log) begin(replay bool, cause, readOnly error) error {
	if readOnly != nil {
		return fmt.Errorf("%w: %w", ErrReadOnly, errors.Join(readOnly, cause))
	}
	if cause != nil && replay {
		l.state.Lost(cause)
	}
	w, err := l.newFile()
	return l.finish(w, err)
}

// openFile opens the file and reads its header. A file with no header that can be read is set aside; cause says why,
// also if an earlier start has done that and then ended.
func (l *Log) openFile(readOnly bool) (f *file, cause, err error) {
	fd, err := l.dir.open(readOnly)
	if errors.Is(err, fs.ErrNotExist) {
		if l.dir.has(fileDamaged) {
			cause = corrupt(errors.New("its file was set aside"))
		}
		return nil, cause, nil
	}
	if err != nil {
		return nil, nil, err
	}
	f, cause, err = l.header(fd)
	if f != nil {
		f.readOnly = readOnly
		return f, nil, nil
	}
	if fd.Close(); err != nil {
		return nil, nil, err
	}
	if !readOnly {
		err = l.setAside(cause)
	}
	return nil, cause, err
}

// header reads the header of a file. The cause is why there is none.
func (l *Log) header(fd *os.File) (f *file, cause, err error) {
	f = &file{name: fd.Name(), os: fd, index: map[Sum]place{}}
	found := false
	for n := range f.slots {
		b := make([]byte, slotSize)
		got, err := readAt(fd, b, int64(n)*slotSpace)
		if err != nil && !isEOF(err) {
			return nil, nil, fmt.Errorf("read %s: %w", fd.Name(), err)
		}
		of, s, err := parseSlot(b[:got], l.codec)
		switch {
		case errors.Is(err, ErrKey):
			return nil, nil, err
		case err != nil:
			if cause == nil || errors.Is(err, ErrFormat) {
				cause = err
			}
		default:
			found, f.identity, f.slots[n] = true, of, s
		}
	}
	if !found {
		return nil, cause, nil
	}
	f.unsound = cause != nil
	return f, nil, nil
}

func (l *Log) setAside(cause error) error {
	if err := errors.Join(l.dir.rename(fileLog, fileDamaged), l.dir.sync()); err != nil {
		return fmt.Errorf("set the damaged file aside: %w", err)
	}
	attrs := []any{"cause", cause, "moved to", l.dir.file(fileDamaged)}
	if errors.Is(cause, ErrFormat) {
		l.log.Warn("cache file has the format of another version of the hub and has been set aside; nothing can be read offline until it has been read again from the cloud", attrs...)
	} else {
		l.log.Warn("cache file was damaged and has been set aside; nothing can be read offline until it has been read again from the cloud", attrs...)
	}
	return nil
}

// use makes a file that was read the log's.
func (l *Log) use(r *loader) {
	f := r.file
	l.number = r.next - 1
	l.size.Store(f.end)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.file = f
	for sum := range f.index {
		f.needed += int64(f.index[sum].size)
	}
	f.needed += f.size
	for name, rows := range r.tables {
		switch {
		case name == tableSalt:
			if r.all && len(rows[keySalt].small) > 0 {
				l.tables[tableSalt] = rows
				continue
			}
		case r.all || slices.Contains(l.opts.Keep, name):
			if l.tables[name] == nil {
				l.tables[name] = map[string]value{}
			}
			maps.Copy(rows, l.tables[name]) // memory is newer
			maps.Copy(l.tables[name], rows)
		}
	}
	if r.tables[tableSalt] == nil { // it was lost
		c := ownRows(tableSalt, l.tables[tableSalt])
		l.next.add(&c)
		wake(l.dirty)
	}
}
