// Package podfiles keeps a small JSON file for each of some pods, which survives a crash.
package podfiles

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cache/durable"
)

// Folder has the files of pods in one folder, each with a T. Calls for the same pod must not overlap.
type Folder[T any] struct {
	dir string
	// Unread is set by Open if a file could not be read, such as of a bad block: what it has is unknown, and not lost.
	Unread bool
}

const (
	suffix  = ".json"
	damaged = ".damaged"
)

// Open creates the folder if it does not exist, and reads its files. A file that is read and is no T is renamed to end in
// .damaged, and logged: it must not keep the hub from starting. One that cannot be read stays, and is logged. If the
// folder cannot be read, Open returns it as well as the error, for who can do without.
func Open[T any](dir string, log *slog.Logger) (*Folder[T], map[types.NamespacedName]T, error) {
	f := &Folder[T]{dir: dir}
	err := os.MkdirAll(dir, 0o700)
	var entries []os.DirEntry
	if err == nil {
		entries, err = os.ReadDir(dir)
	}
	if err != nil {
		f.Unread = true
		return f, nil, err
	}
	all := map[types.NamespacedName]T{}
	for _, e := range entries {
		// No name of Kubernetes has an underscore or begins with a dot.
		if strings.HasPrefix(e.Name(), ".") || !strings.HasSuffix(e.Name(), suffix) {
			continue
		}
		file := filepath.Join(dir, e.Name())
		pod, ok := podOf(e.Name())
		if !ok {
			log.Warn("a file of an older hub is not read: what it had has to be requested again, and the file can be removed", "file", file)
			continue
		}
		var v T
		content, err := os.ReadFile(file)
		if err != nil {
			f.Unread = true
			log.Error("a file cannot be read: what it has does not count until the next start", "file", file, "err", err)
			continue
		}
		if err := json.Unmarshal(content, &v); err != nil {
			err = errors.Join(err, os.Rename(file, file+damaged))
			log.Error("a file is damaged: what it had is lost, and its content is set aside", "file", file+damaged, "err", err)
			continue
		}
		all[pod] = v
	}
	return f, all, nil
}

// podOf returns the pod of a file with suffix.
func podOf(file string) (pod types.NamespacedName, ok bool) {
	pod.Namespace, pod.Name, ok = strings.Cut(strings.TrimSuffix(file, suffix), "_")
	return pod, ok
}

// Read reads the files of a folder as Open does, and changes nothing: another process may use the folder meanwhile. lost are the
// paths of those that are damaged, that Open has set aside as such, or that cannot be read. A folder that does not exist has none.
func Read[T any](dir string) (all map[types.NamespacedName]T, lost []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	all = map[types.NamespacedName]T{}
	for _, e := range entries {
		file := filepath.Join(dir, e.Name())
		pod, ok := podOf(e.Name())
		switch {
		case strings.HasPrefix(e.Name(), "."), !ok:
			continue
		case strings.HasSuffix(e.Name(), suffix+damaged):
			lost = append(lost, file)
			continue
		case !strings.HasSuffix(e.Name(), suffix):
			continue
		}
		var v T
		content, err := os.ReadFile(file)
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed since
		case err != nil, json.Unmarshal(content, &v) != nil:
			lost = append(lost, file)
		default:
			all[pod] = v
		}
	}
	return all, lost, nil
}

// Put writes the file of a pod. Once it returns nil, the content survives a crash.
func (f *Folder[T]) Put(pod types.NamespacedName, v T) error {
	content, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the file of pod %s: %w", pod, err)
	}
	file, err := f.file(pod)
	if err != nil {
		return err
	}
	err = durable.Write(file, content)
	if errors.Is(err, fs.ErrNotExist) { // the folder has vanished
		if err = os.MkdirAll(f.dir, 0o700); err == nil {
			err = durable.Write(file, content)
		}
	}
	return err
}

// Delete removes the file of a pod, if it exists.
func (f *Folder[T]) Delete(pod types.NamespacedName) error {
	file, err := f.file(pod)
	if err != nil {
		return nil //nolint:nilerr // Put has written none
	}
	return durable.Remove(file)
}

// file fails for a name that would lead elsewhere.
func (f *Folder[T]) file(pod types.NamespacedName) (string, error) {
	file := filepath.Join(f.dir, pod.Namespace+"_"+pod.Name+suffix)
	if filepath.Dir(file) != filepath.Clean(f.dir) {
		return "", fmt.Errorf("%.100q is no name of a pod", pod.String())
	}
	return file, nil
}
