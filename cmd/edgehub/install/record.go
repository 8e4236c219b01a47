package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/edgehub-io/edgehub/cache/durable"
	"github.com/edgehub-io/edgehub/cmd/edgehub/install/files"
)

// stateDir has the record, and the backups of the files that were replaced.
const stateDir = "/var/lib/edgehub-install"

// record is what edgehub has done on this node, and is about to do. It is written before each step.
type record struct {
	Installed *installed `json:"installed,omitempty"`
	Change    *change    `json:"change,omitempty"` // in progress, or interrupted
}

// installed is a completed install.
type installed struct {
	Options   Options                `json:"options"`
	Version   string                 `json:"version"`
	Originals map[string]files.Entry `json:"originals"` // the files before the first install
	Written   map[string]files.Entry `json:"written"`
	Folders   []string               `json:"folders"` // created by the install, the outermost first
	RootDir   string                 `json:"rootDir"` // of the hub

	// Interface has the addresses in PodServers, HOST:PORT, at which pods reach the hub. Both are
	// empty if pods are not led to it.
	Interface  string   `json:"interface,omitempty"`
	PodServers []string `json:"podServers,omitempty"`
	Transforms []string `json:"transforms,omitempty"`
}

// change is an install or uninstall in progress. If it is interrupted, an install is rolled back, and
// an uninstall is completed.
type change struct {
	Uninstall bool                   `json:"uninstall,omitempty"`
	Purge     bool                   `json:"purge,omitempty"`
	Before    map[string]files.Entry `json:"before"`
	Folders   []string               `json:"folders"`
	Sockets   bool                   `json:"sockets"` // the change replaces them
	Kubelet   bool                   `json:"kubelet"` // the change restarts it, or has done so
	// FreshRoot is the hub's root folder, if the change creates it.
	FreshRoot string `json:"freshRoot,omitempty"`
	// Interface is the dummy interface that an install sets up, if there was none.
	Interface string `json:"interface,omitempty"`
	// Removing means that an uninstall removes the hub, which until then stays for the pods that use it. With Strand,
	// it does not care for them.
	Removing bool `json:"removing,omitempty"`
	Strand   bool `json:"strand,omitempty"`
}

// errBusy is returned while another install or uninstall is running.
var errBusy = errors.New("another edgehub install or uninstall is under way on this node; wait for its end")

// journal is the record on disk, locked until close.
type journal struct {
	record
	lock *os.File
}

func recordFile() string { return filepath.Join(stateDir, "record.json") }

func contentFile(sum string) string { return filepath.Join(stateDir, "content", sum) }

// readRecord reads the record without locking it.
func readRecord() (record, error) {
	var r record
	content, err := os.ReadFile(recordFile())
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(content, &r)
	}
	if err != nil {
		return r, fmt.Errorf("read the record of the install, %s: %w", recordFile(), err)
	}
	return r, nil
}

func openJournal() (*journal, error) {
	if err := os.MkdirAll(filepath.Join(stateDir, "content"), 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of the record: %w", err)
	}
	lock, err := os.Open(stateDir)
	if err != nil {
		return nil, fmt.Errorf("lock the record: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return nil, errBusy
	}
	j := &journal{lock: lock}
	if j.record, err = readRecord(); err != nil {
		lock.Close()
		return nil, err
	}
	return j, nil
}

// close unlocks the record, and removes its folder if nothing is installed.
func (j *journal) close() {
	if j.Installed == nil && j.Change == nil {
		_ = os.RemoveAll(stateDir)
	}
	j.lock.Close()
}

// save writes the record to disk. It is the commit point of each step.
func (j *journal) save() error {
	content, err := json.MarshalIndent(j.record, "", "  ")
	if err == nil {
		err = durable.Write(recordFile(), content)
	}
	if err != nil {
		return fmt.Errorf("write the record: %w", err)
	}
	return nil
}

// backUp stores the content of a file, and returns the entry at its path.
func (j *journal) backUp(path string) (files.Entry, error) {
	e, content, err := files.Read(path)
	if err != nil || e.Kind != files.KindFile {
		return e, err
	}
	if _, err := os.Lstat(contentFile(e.Sum)); err == nil {
		return e, nil
	}
	if err := durable.Write(contentFile(e.Sum), content); err != nil {
		return e, fmt.Errorf("put %s aside: %w", path, err)
	}
	return e, nil
}

// restore restores entries from the backups. It does not touch paths that are unchanged.
func (j *journal) restore(entries map[string]files.Entry) error {
	var errs []error
	for _, path := range slices.Sorted(maps.Keys(entries)) {
		e := entries[path]
		if ok, err := files.Same(path, e); err == nil && ok {
			continue
		}
		var content []byte
		var err error
		if e.Kind == files.KindFile {
			content, err = os.ReadFile(contentFile(e.Sum))
		}
		if err == nil && e.Kind == files.KindFile && files.Sum(content) != e.Sum {
			err = errors.New("what was put aside is damaged")
		}
		if err == nil {
			err = files.Write(path, e, content)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("put %s back: %w", path, err))
		}
	}
	return errors.Join(errs...)
}

// prune removes the backups that an uninstall does not need. No change may be in progress.
func (j *journal) prune() {
	needed := map[string]bool{}
	if j.Installed != nil {
		for _, e := range j.Installed.Originals {
			needed[e.Sum] = true
		}
	}
	kept, err := os.ReadDir(filepath.Join(stateDir, "content"))
	if err != nil {
		return // the next prune may succeed
	}
	for _, file := range kept {
		if !needed[file.Name()] {
			_ = os.Remove(contentFile(file.Name()))
		}
	}
}
