// Package cache_test is a randomized test of what a hub keeps: it is killed at random
// instants under load, its files are cut short, spoiled or lost, its disk is full.
//
// After each, the hub is started without a cloud, and everything that its clients had
// read is read again. What comes must be what the apiserver answered at just the
// version that the answer names, or 503: never short, never wrong. Then the cloud
// comes back, and the cache must be whole again.
//
// ROUNDS sets how many rounds are played, FIRST_SEED with which to begin. What is
// done in a round follows from its seed; how far the hub has come when it happens
// does not.
package cache_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/edgehub-io/edgehub/test/chaos/seeds"
)

const (
	defaultRounds = 50
	// inside is set for a test that is in a mount namespace of its own.
	inside = "EDGEHUB_CHAOS_MOUNTS"
)

// hubBin is where `make build` leaves the hub.
const hubBin = "../../../bin/edgehub"

func TestMain(m *testing.M) {
	if os.Geteuid() == 0 && os.Getenv(inside) == "" {
		os.Exit(inOwnMounts())
	}
	if os.Getenv(inside) != "" {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			fmt.Fprintln(os.Stderr, "part from the mounts of the host:", err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// inOwnMounts runs this test again where the small disks that it mounts are nobody
// else's, and go with it however it ends.
func inOwnMounts() int {
	runtime.LockOSThread() // the parent's death is that of the thread
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inside+"=yes")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return exit.ExitCode()
	case err != nil:
		fmt.Fprintln(os.Stderr, "run the test in mounts of its own:", err)
		return 1
	}
	return 0
}

func TestWhateverHappensToTheHubNoAnswerIsWrong(t *testing.T) {
	binary, err := filepath.Abs(hubBin)
	if err == nil {
		_, err = os.Stat(binary)
	}
	if err != nil {
		t.Fatalf("%v (`make build` builds it)", err)
	}
	total := &tally{faults: map[string]int{}}
	t.Run("rounds", func(t *testing.T) {
		seeds.Each(t, "ROUNDS", defaultRounds, func(t *testing.T, seed int) {
			t.Parallel()
			newWorld(t, binary, seed, total).play()
		})
	})
	t.Log(total)
	if total.right == 0 {
		t.Error("no view was ever answered: nothing was proved")
	}
}
