package cluster

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

var errLauncherClosed = errors.New("launcher is closed")

// launcher starts processes from one operating system thread that lives as
// long as the launcher does. Linux binds two things to the thread that starts
// a process, not to the program: the parent-death signal, which would hit the
// child early if the Go runtime retired the thread, and the namespaces that
// the child is born into.
type launcher struct {
	calls  chan func()
	closed chan struct{}
	// parentDeath kills what was started when this program dies. Not possible in
	// a process namespace that this program is outside of: the Go runtime looks
	// in the child whether the parent lives, does not see it, and gives up.
	parentDeath syscall.Signal
}

// newLauncher returns when enter, which moves the thread into the namespaces of
// the processes to come, has returned; nil stays where the program is. Whoever
// enters must see to it that they end when this program does.
func newLauncher(enter func() error) (*launcher, error) {
	l := &launcher{calls: make(chan func()), closed: make(chan struct{})}
	if enter == nil {
		l.parentDeath = syscall.SIGKILL
	}
	entered := make(chan error, 1)
	onThreadOfItsOwn(func() {
		if enter != nil {
			if err := enter(); err != nil {
				entered <- err
				return
			}
		}
		entered <- nil
		for {
			select {
			case call := <-l.calls:
				call()
			case <-l.closed:
				return
			}
		}
	})
	if err := <-entered; err != nil {
		return nil, err
	}
	return l, nil
}

// onThreadOfItsOwn runs f on a thread that the runtime ends with it, so that no
// other goroutine finds itself in foreign namespaces. The main thread is none of
// those: it never ends, and /proc/self is what it sees.
func onThreadOfItsOwn(f func()) {
	go func() {
		runtime.LockOSThread() // unlocked only where f runs on another thread
		if unix.Gettid() != os.Getpid() {
			f()
			return
		}
		locked := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(locked)
			f()
		}()
		<-locked
		runtime.UnlockOSThread()
	}()
}

// start starts cmd in a process group of its own, so that Ctrl-C in a terminal
// reaches only the program that owns the cluster.
func (l *launcher) start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pdeathsig = l.parentDeath

	started := make(chan error, 1)
	select {
	case l.calls <- func() { started <- cmd.Start() }:
		return <-started
	case <-l.closed:
		return errLauncherClosed
	}
}

// close ends the thread; what it has started and still runs is killed with it.
func (l *launcher) close() {
	close(l.closed)
}
