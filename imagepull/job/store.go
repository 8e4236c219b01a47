package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/types"
)

// suffix ends the name of a job's file; what is being written has another.
const suffix = ".json"

// MaxFileSize bounds a job's file, in bytes. A pod's annotations, where the images come
// from, are at most 256 KiB; with what is known of each image once it is ready, a job
// of a few hundred images is still below this.
const MaxFileSize = 1 << 20

// Store keeps each job in a file of its own. Its methods are for one caller at a
// time.
type Store struct {
	dir string
	log *slog.Logger
}

// NewStore returns the store in dir, which is made when there is something to keep.
func NewStore(dir string, log *slog.Logger) Store { return Store{dir, log} }

// errDamaged is the error of a file that was read, and is no job.
var errDamaged = errors.New("it is not a whole job")

// Load reads all jobs. A damaged file is moved aside, and is no error; one that
// cannot be read now may be another time.
func (f Store) Load() (jobs []*Job, err error) {
	entries, err := os.ReadDir(f.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // it is made when there is something to keep
	}
	if err != nil {
		return nil, fmt.Errorf("read the queue of images: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), suffix) {
			continue
		}
		path := filepath.Join(f.dir, e.Name())
		j, err := readJob(path)
		switch {
		case err == nil:
			jobs = append(jobs, j)
		case errors.Is(err, errDamaged):
			f.log.Error("file of a pre-pull is damaged and is moved aside; ask for that pre-pull again", "file", path, "err", errors.Join(err, os.Rename(path, path+".damaged")))
		default:
			errs = append(errs, err)
		}
	}
	return jobs, errors.Join(errs...)
}

func readJob(path string) (*Job, error) {
	raw, err := readBounded(path)
	if err != nil {
		return nil, err
	}
	j := &Job{}
	if err := json.Unmarshal(raw, j); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, errDamaged, err)
	}
	if string(j.UID)+suffix != filepath.Base(path) || j.Namespace == "" || j.Pod == "" || j.Revision == "" || len(j.Images) == 0 {
		return nil, fmt.Errorf("%s: %w", path, errDamaged)
	}
	for i := range j.Images {
		j.Images[i].Name = ImageName(j.Images[i].Image)
	}
	return j, nil
}

// readBounded reads a regular file of at most MaxFileSize bytes. Whatever else stands in
// its place is errDamaged: to open a FIFO waits for a writer, and to read from a device
// may never end.
func readBounded(path string) (raw []byte, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w, but of type %s", path, errDamaged, info.Mode().Type())
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	raw, err = io.ReadAll(io.LimitReader(f, MaxFileSize+1))
	if err == nil && len(raw) > MaxFileSize {
		return nil, fmt.Errorf("%s: %w: it is larger than %d bytes", path, errDamaged, MaxFileSize)
	}
	return raw, err
}

// Save writes a job. When it returns nil, the job is there after a crash, too;
// when it fails, what was there before is.
func (f Store) Save(j *Job) error {
	raw, err := json.Marshal(j)
	if err != nil {
		return fmt.Errorf("encode the pre-pull of pod %s: %w", j.Name(), err)
	}
	if len(raw) > MaxFileSize { // it would not be read again
		return fmt.Errorf("keep the pre-pull of pod %s: it has %d images, which take more than %d bytes", j.Name(), len(j.Images), MaxFileSize)
	}
	path := f.path(j.UID)
	err = f.make()
	if err == nil {
		err = writeSynced(path+".new", raw)
	}
	if err == nil {
		err = os.Rename(path+".new", path) // from here on it is the job
	}
	if err != nil {
		_ = os.Remove(path + ".new") // it takes room
		return fmt.Errorf("keep the pre-pull of pod %s: %w", j.Name(), err)
	}
	f.sync(f.dir)
	return nil
}

// make makes the folder, if it is not there.
func (f Store) make() error {
	err := os.Mkdir(f.dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = os.MkdirAll(f.dir, 0o700)
	}
	if err == nil {
		f.sync(filepath.Dir(f.dir))
	}
	return err
}

// Remove forgets a job; one that is not there is forgotten already.
func (f Store) Remove(uid types.UID) error {
	err := os.Remove(f.path(uid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("forget a pre-pull: %w", err)
	}
	f.sync(f.dir)
	return nil
}

// path has no way out of the folder: a UID is what an apiserver made, but it comes
// over a network.
func (f Store) path(uid types.UID) string {
	return filepath.Join(f.dir, filepath.Base(string(uid))+suffix)
}

// sync makes a change of a folder last. Where the disk does not, the change is there
// all the same, until the power fails.
func (f Store) sync(dir string) {
	d, err := os.Open(dir)
	if err == nil {
		err = errors.Join(d.Sync(), d.Close())
	}
	if err != nil {
		f.log.Error("what was written to disk may not survive a power cut", "folder", dir, "err", err)
	}
}

// writeSynced makes a new file. What an earlier write has left, or anything else of this
// name, is removed first: to open a FIFO waits for a reader.
func writeSynced(path string, raw []byte) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
