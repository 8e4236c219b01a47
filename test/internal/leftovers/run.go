package leftovers

import (
	"errors"
	"io/fs"
	"os"
	"strconv"

	"github.com/edgehub-io/edgehub/test/cluster/tempdir"
)

// runVariable tells processes in which folder of a Run they make temporary folders: those of
// testing.T.TempDir, and what the go command works in.
const runVariable = "GOTMPDIR"

// Run is a folder for all that a run of tests writes, so that Clean finds it, and the
// processes of the run, when the run was killed.
type Run struct{ dir *tempdir.Dir }

// NewRun makes the folder. It is the run's until Close, or until this process ends. Its path is the
// same each time, unless another run has it: Go's test cache takes no result of a test with another
// GOTMPDIR. What an earlier run has left in it is for Clean, before.
func NewRun() (*Run, error) {
	dir, err := tempdir.MakeAs("run-" + strconv.Itoa(os.Getuid()))
	if errors.Is(err, fs.ErrExist) {
		dir, err = tempdir.Make("run")
	}
	if err != nil {
		return nil, err
	}
	return &Run{dir}, nil
}

// Env is for the environment of the processes that the run starts.
func (r *Run) Env() string { return runVariable + "=" + r.dir.Path }

// Close removes the folder, when the run's processes have ended.
func (r *Run) Close() error { return r.dir.Remove() }
