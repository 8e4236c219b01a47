// Package audit reads an apiserver's own record of who asked it for what: each
// request once, when it arrives, also those that are refused.
package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Log is the record of one apiserver.
type Log struct {
	policy, file string
}

// Request is one that the apiserver has seen.
type Request struct {
	Verb       string `json:"verb"`
	RequestURI string `json:"requestURI"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		APIGroup    string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	// ResponseStatus is known of what NewAnswered notes.
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

// New prepares a record in a folder, which is made if need be. rules are those of an
// audit Policy, as the items of a list in YAML: they select the requests that are logged.
func New(dir, rules string) (*Log, error) {
	return open(dir, "ResponseStarted, ResponseComplete, Panic", rules)
}

// NewAnswered is New, but requests are noted when they are answered, with the code. A
// watch is noted when it begins and when it ends.
func NewAnswered(dir, rules string) (*Log, error) { return open(dir, "RequestReceived, Panic", rules) }

func open(dir, omit, rules string) (*Log, error) {
	l := &Log{policy: filepath.Join(dir, "audit-policy.yaml"), file: filepath.Join(dir, "audit.log")}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	policy := "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [" + omit + "]\nrules:\n" + rules
	return l, os.WriteFile(l.policy, []byte(policy), 0o644)
}

// Args are the flags of the apiserver.
func (l *Log) Args() []string {
	return []string{
		"--audit-policy-file=" + l.policy,
		"--audit-log-path=" + l.file,
		"--audit-log-maxsize=10000", // MB: one file, whatever happens
	}
}

// Mark is where the record ends now.
func (l *Log) Mark() (int64, error) {
	info, err := os.Stat(l.file)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // nothing was asked yet
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Since returns the requests after a mark.
func (l *Log) Since(mark int64) ([]Request, error) {
	file, err := os.Open(l.file)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if _, err := file.Seek(mark, io.SeekStart); err != nil {
		return nil, err
	}
	var out []Request
	for decoder := json.NewDecoder(file); ; {
		var r Request
		err := decoder.Decode(&r)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // the rest is being written
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		out = append(out, r)
	}
}
