package keyring

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// Entries are the credentials of one secret or one file.
type Entries []entry

type entry struct {
	pattern    string
	parsed     *url.URL // of pattern
	credential engineapi.Credential
}

// Format prints no credentials, whatever the verb.
func (e Entries) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "credentials for %d registries", len(e)) }

// FromSecret reads a Secret of type kubernetes.io/dockerconfigjson or kubernetes.io/dockercfg. If it
// cannot use everything, it returns an error together with the usable entries. The error names the
// secret, and contains no credential.
func FromSecret(s *corev1.Secret) (Entries, error) {
	source := "secret " + s.Namespace + "/" + s.Name
	var entries Entries
	var err error
	switch s.Type {
	case corev1.SecretTypeDockerConfigJson:
		entries, err = fromKey(s, corev1.DockerConfigJsonKey, readConfigJSON, source)
	case corev1.SecretTypeDockercfg:
		entries, err = fromKey(s, corev1.DockerConfigKey, readDockercfg, source)
	default:
		err = fmt.Errorf("its type is %.100q: want %s or %s", s.Type, corev1.SecretTypeDockerConfigJson, corev1.SecretTypeDockercfg)
	}
	for i := range entries {
		entries[i].credential.Namespace = s.Namespace
	}
	if err == nil && len(entries) == 0 {
		err = errors.New("it names no registry")
	}
	if err != nil {
		return entries, fmt.Errorf("%s: %w", source, err)
	}
	return entries, nil
}

func fromKey(s *corev1.Secret, key string, read reader, source string) (Entries, error) {
	content := s.Data[key]
	if len(content) == 0 {
		return nil, fmt.Errorf("it has nothing under %s", key)
	}
	entries, err := read(content, source)
	if err != nil {
		return entries, fmt.Errorf("%s: %w", key, err)
	}
	return entries, nil
}

// legacyName is the name of files in Docker's first format. All others have that of config.json.
const legacyName = ".dockercfg"

// FromFile reads a config.json of Docker, or a .dockercfg. Entries are nil if the file is invalid, and
// empty if it names no registry. With entries, an error counts those that were skipped.
func FromFile(path string) (Entries, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read credentials: %w", err)
	}
	read := readConfigJSON
	if filepath.Base(path) == legacyName {
		read = readDockercfg
	}
	source := "file " + path
	entries, err := read(content, source)
	if err != nil {
		return entries, fmt.Errorf("%s: %w", source, err)
	}
	return entries, nil
}

// FirstOf reads the first valid file, and like the kubelet ignores those after it. Missing files are no
// error; the error is about invalid ones.
func FirstOf(files []string) (Entries, error) {
	var errs []error
	for _, file := range files {
		entries, err := FromFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		if entries != nil {
			return entries, errors.Join(errs...)
		}
	}
	return nil, errors.Join(errs...)
}

// NodeFiles returns the files in which the kubelet looks for the node's own credentials, in its order, for
// FirstOf. It assumes that the kubelet's working directory is /, and its HOME that of this process: units
// of systemd have that directory and, without User=, no HOME, unless somebody has set it.
func NodeFiles(kubeletRootDir string) []string {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/"
	}
	var files []string
	for _, file := range []string{
		filepath.Join(kubeletRootDir, "config.json"), "/config.json",
		filepath.Join(home, ".docker", "config.json"), "/.docker/config.json",
		filepath.Join(kubeletRootDir, legacyName), "/" + legacyName,
		filepath.Join(home, legacyName),
	} {
		if !slices.Contains(files, file) {
			files = append(files, file)
		}
	}
	return files
}
