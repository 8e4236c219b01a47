package peer

import (
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSelfTest(t *testing.T) {
	if os.Geteuid() != 0 {
		if err := here(t).SelfTest(); err == nil || !strings.Contains(err.Error(), "CAP_SYS_PTRACE") {
			t.Errorf("as an ordinary user: %v", err)
		}
		return
	}
	if err := here(t).SelfTest(); err != nil {
		t.Error(err)
	}
	withoutCapability(t, unix.CAP_SYS_PTRACE, func() {
		err := here(t).SelfTest()
		if err == nil || !strings.Contains(err.Error(), "lacks CAP_SYS_PTRACE (") {
			t.Errorf("without CAP_SYS_PTRACE: %v", err)
		}
	})
}

// withoutCapability runs body in a thread that has dropped a capability, and then ends the thread.
func withoutCapability(t *testing.T, bit int, body func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // not unlocked: the thread ends
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		if err := unix.Capget(&header, &data[0]); err != nil {
			t.Error(err)
			return
		}
		data[bit/32].Effective &^= 1 << (bit % 32)
		data[bit/32].Permitted &^= 1 << (bit % 32)
		if err := unix.Capset(&header, &data[0]); err != nil {
			t.Error(err)
			return
		}
		body()
	}()
	<-done
}

func TestSelfTestSaysWhatHidesProcesses(t *testing.T) {
	err := checkOthersReadable(t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "ProtectProc=") {
		t.Error(err)
	}
}
