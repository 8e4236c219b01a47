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

// suffix is that of a job's file, but not of a file that is still being written.
const suffix = ".json"

// MaxFileSize bounds a job's file, in bytes. The images come from a pod's annotations, which have
// 256 KiB at most. A job of a few hundred images, all ready, is smaller.
const MaxFileSize = 1 << 20

// Store stores each job in its own file. It is not safe for concurrent use.
type Store struct {
	dir string
	log *slog.Logger
}

// NewStore returns the store in dir, which Save creates.
func NewStore(dir string, log *slog.Logger) Store { return Store{dir, log} }

// errDamaged is the error of a file that is no job.
var errDamaged = errors.New("it is not a whole job")

// Load reads all jobs. It renames damaged files and logs them. Its error is for files that could
// not be read, perhaps only now.
func (f Store) Load() (jobs []*Job, err error) {
	entries, err := os.ReadDir(f.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
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

// readBounded reads a regular file of at most MaxFileSize bytes. Anything else is errDamaged:
// opening a FIFO waits for a writer, and reading a device may never end.
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

// Save writes a job. If it returns nil, the job survives a crash. If it fails, the former state of
// the job remains.
func (f Store) Save(j *Job) error {
	raw, err := json.Marshal(j)
	if err != nil {
		return fmt.Errorf("encode the pre-pull of pod %s: %w", j.Name(), err)
	}
	if len(raw) > MaxFileSize { // Load would reject it
		return fmt.Errorf("keep the pre-pull of pod %s: it has %d images, which take more than %d bytes", j.Name(), len(j.Images), MaxFileSize)
	}
	path := f.path(j.UID)
	err = f.make()
	if err == nil {
		err = writeSynced(path+".new", raw)
	}
	if err == nil {
		err = os.Rename(path+".new", path) // the commit point
	}
	if err != nil {
		_ = os.Remove(path + ".new") // it would take space
		return fmt.Errorf("keep the pre-pull of pod %s: %w", j.Name(), err)
	}
	f.sync(f.dir)
	return nil
}

// make creates the folder if necessary.
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

// Remove removes a job. It returns nil if there is none.
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

// path returns a file in the folder whatever the UID is: UIDs come over a network.
func (f Store) path(uid types.UID) string {
	return filepath.Join(f.dir, filepath.Base(string(uid))+suffix)
}

// sync flushes a folder. If that fails, a change of the folder is lost only if the power fails.
func (f Store) sync(dir string) {
	d, err := os.Open(dir)
	if err == nil {
		err = errors.Join(d.Sync(), d.Close())
	}
	if err != nil {
		f.log.Error("what was written to disk may not survive a power cut", "folder", dir, "err", err)
	}
}

// writeSynced writes and flushes a new file. It first removes whatever has this name: opening a
// FIFO would wait for a reader.
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
