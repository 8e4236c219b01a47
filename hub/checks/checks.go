package checks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/ota/api"
)

// Dir is where the owner's checks are.
const Dir = "/etc/edgehub/check"

// The folders in Dir, in the order in which they are run.
const (
	required = "required.d"
	wanted   = "wanted.d"
)

// Runner runs checks. Its fields must not change after the first call.
type Runner struct {
	Dir string // with required.d and wanted.d; one that does not exist has no checks
	// Scratch is a folder that systemd knows by the same path, and only root may write. It is created if it does not exist.
	Scratch string
	// Limit is how long one check may take; 0: MaxTime.
	Limit time.Duration

	owner uint32 // of all files; other than root in tests
}

// check is one file of the owner's.
type check struct {
	folder, name string
	refused      string // why it is not run; "": it is
}

// String names a check as the owner does.
func (c check) String() string { return c.folder + "/" + api.OneLine(c.name, maxName) }

// Result is the outcome of one check.
type Result struct {
	Check    string `json:"check"` // such as required.d/10-disk
	Required bool   `json:"required"`
	Passed   bool   `json:"passed"`
	Message  string `json:"message,omitempty"` // why it has not passed, one line with the last one that it wrote
}

// Failure returns that a check has not passed, and why, in one line.
func (r Result) Failure() string { return fmt.Sprintf("check %s has failed: %s", r.Check, r.Message) }

// Run runs all checks, one after the other, and ends early if the caller has seen enough. The error is why it is not known whether a
// required check passes. pod, as it runs, is in their environment; nil: none is.
func (r *Runner) Run(ctx context.Context, pod *corev1.Pod) iter.Seq2[Result, error] {
	return func(yield func(Result, error) bool) {
		all, err := r.list()
		if err != nil {
			yield(Result{}, err)
			return
		}
		for _, c := range all {
			result := Result{Check: c.String(), Required: c.folder == required, Message: c.refused}
			if c.refused == "" {
				result.Message, err = r.run(ctx, c, environment(pod))
				result.Passed = err == nil && result.Message == ""
			}
			switch {
			case ctx.Err() != nil:
				err = ctx.Err()
			case err != nil && result.Required:
				err = fmt.Errorf("check %s: %w", c, err)
			case err != nil:
				result.Message, err = err.Error(), nil
			}
			if !yield(result, err) || ctx.Err() != nil {
				return
			}
		}
	}
}

// Possible returns why the checks cannot be run, one line for people; nil if they can, or if there are none.
func (r *Runner) Possible(ctx context.Context) error {
	all, err := r.list()
	if err != nil || len(all) == 0 {
		return err
	}
	for _, c := range all {
		if c.refused != "" && c.folder == required {
			return fmt.Errorf("check %s is not run: %s", c, c.refused)
		}
	}
	return r.try(ctx)
}

// list returns the owner's checks in the order in which they are run.
func (r *Runner) list() (all []check, err error) {
	for _, folder := range []string{"", required, wanted} {
		path := filepath.Join(r.Dir, folder)
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			return nil, fmt.Errorf("%s is not a folder", path)
		}
		if why := r.distrust(info); why != "" {
			return nil, fmt.Errorf("folder %s: %s", path, why)
		}
		if folder == "" {
			continue
		}
		entries, err := os.ReadDir(path) // by name
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			info, err := e.Info()
			if err != nil {
				return nil, err
			}
			all = append(all, check{folder, e.Name(), r.refuse(info)})
		}
	}
	return all, nil
}

// maxName bounds the name of a check, in bytes.
const maxName = 100

// checkName is what can be a part of a unit's name, as it is.
var checkName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// refuse returns why a file is not run, or "".
func (r *Runner) refuse(info fs.FileInfo) string {
	switch {
	case !checkName.MatchString(info.Name()), len(info.Name()) > maxName:
		return "its name may have at most 100 letters, digits, dots, dashes and underscores, and begins with a letter or digit"
	case !info.Mode().IsRegular():
		return "it is not a regular file"
	case info.Mode().Perm()&0o100 == 0:
		return "it is not executable: chmod 755"
	}
	return r.distrust(info)
}

// distrust returns how others than root may change a file or folder, or "". An access control list shows in the bits of the group.
func (r *Runner) distrust(info fs.FileInfo) string {
	if s, ok := info.Sys().(*syscall.Stat_t); !ok || s.Uid != r.owner {
		return "it is not owned by root: chown root:root"
	}
	if info.Mode().Perm()&0o022 != 0 {
		return "others than root may write it: chmod go-w"
	}
	return ""
}

// environment returns the variables that describe a pod to a check.
func environment(pod *corev1.Pod) []string {
	if pod == nil {
		return nil
	}
	var images []string
	for i := range pod.Spec.Containers {
		images = append(images, pod.Spec.Containers[i].Name+"="+pod.Spec.Containers[i].Image)
	}
	return []string{
		"EDGEHUB_NAMESPACE=" + pod.Namespace, "EDGEHUB_POD=" + pod.Name, "EDGEHUB_POD_UID=" + string(pod.UID),
		"EDGEHUB_REVISION=" + pod.Labels[appsv1.ControllerRevisionHashLabelKey], "EDGEHUB_IMAGES=" + strings.Join(images, " "),
	}
}
