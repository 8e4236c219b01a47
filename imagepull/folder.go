package imagepull

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// suffix ends the name of a job's file; what is being written has another.
const suffix = ".json"

// folder keeps each job in a file of its own. Its methods are for one caller at a
// time.
type folder struct{ dir string }

// load reads all jobs. A file that cannot be read as one is moved aside, and
// returned among the damaged.
func (f folder) load() (jobs []*job, damaged []error, err error) {
	entries, err := os.ReadDir(f.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil // it is made when there is something to keep
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read the queue of images: %w", err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), suffix) {
			continue
		}
		path := filepath.Join(f.dir, e.Name())
		j, err := readJob(path)
		if err != nil {
			damaged = append(damaged, errors.Join(err, os.Rename(path, path+".damaged")))
			continue
		}
		jobs = append(jobs, j)
	}
	return jobs, damaged, nil
}

func readJob(path string) (*job, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	j := &job{}
	if err := json.Unmarshal(raw, j); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if string(j.UID)+suffix != filepath.Base(path) || j.Namespace == "" || j.Pod == "" || j.Revision == "" || len(j.Images) == 0 {
		return nil, fmt.Errorf("%s: it is not a whole job", path)
	}
	return j, nil
}

// save writes a job. When it returns nil, the job is there after a crash, too;
// when it fails, what was there before is.
func (f folder) save(j *job) error {
	raw, err := json.Marshal(j)
	if err != nil {
		return fmt.Errorf("encode the pre-pull of pod %s: %w", j.name(), err)
	}
	path := f.path(j.UID)
	err = os.MkdirAll(f.dir, 0o700)
	if err == nil {
		err = writeSynced(path+".new", raw)
	}
	if err == nil {
		err = os.Rename(path+".new", path) // from here on it is the job
	}
	if err == nil {
		err = f.sync()
	}
	if err != nil {
		return fmt.Errorf("keep the pre-pull of pod %s: %w", j.name(), err)
	}
	return nil
}

// remove forgets a job; one that is not there is forgotten already.
func (f folder) remove(uid types.UID) error {
	err := os.Remove(f.path(uid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("forget a pre-pull: %w", err)
	}
	return f.sync()
}

// path has no way out of the folder: a UID is what an apiserver made, but it comes
// over a network.
func (f folder) path(uid types.UID) string {
	return filepath.Join(f.dir, filepath.Base(string(uid))+suffix)
}

func (f folder) sync() error {
	d, err := os.Open(f.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func writeSynced(path string, raw []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
