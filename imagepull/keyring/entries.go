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

// Entries is the content of one secret or one file, registry by registry.
type Entries []entry

type entry struct {
	pattern    string
	parsed     *url.URL // of pattern
	credential engineapi.Credential
}

// Format keeps credentials out of every verb.
func (e Entries) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "credentials for %d registries", len(e)) }

// FromSecret reads a Secret of type kubernetes.io/dockerconfigjson or
// kubernetes.io/dockercfg. It returns an error when there is anything in it that
// cannot be used, and with it the entries that can. The error names the secret, and
// has nothing of a credential in it.
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

// legacyName is that of a file in Docker's first format; files of all other names
// are in that of config.json.
const legacyName = ".dockercfg"

// FromFile reads a config.json of Docker, or a .dockercfg. A file that names no
// registry is as good as another. Entries are nil when the file cannot be used at
// all, and an error beside others names what was passed over.
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

// FirstOf reads the first of files that can be used, as kubelet does: those behind it are
// not looked at. Files that are not there are no error; the error tells of those
// that are, and cannot be used.
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

// NodeFiles returns the files that kubelet looks for the node's own credentials in,
// in its order; see FirstOf. kubelet's working directory is taken to be /, and its
// HOME to be that of this process: a unit of systemd has the one, and without User=
// no HOME, unless somebody has set it.
func NodeFiles(kubeletRootDir string) []string {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/"
	}
	files := []string{
		filepath.Join(kubeletRootDir, "config.json"), "/config.json",
		filepath.Join(home, ".docker", "config.json"), "/.docker/config.json",
		filepath.Join(kubeletRootDir, legacyName), "/" + legacyName,
		filepath.Join(home, legacyName),
	}
	var once []string
	for _, f := range files {
		if !slices.Contains(once, f) {
			once = append(once, f)
		}
	}
	return once
}
