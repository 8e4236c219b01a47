package peer

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// fakeProc is a folder like /proc.
type fakeProc string

func (root fakeProc) process(t *testing.T, pid int, cgroup string, sockets ...uint32) {
	t.Helper()
	dir := filepath.Join(string(root), fmt.Sprint(pid))
	if err := os.MkdirAll(filepath.Join(dir, "fd"), 0o755); err != nil {
		t.Fatal(err)
	}
	if cgroup != "" {
		if err := os.WriteFile(filepath.Join(dir, "cgroup"), []byte(cgroup), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	root.flags(t, pid, 0x400100)
	root.user(t, pid, 0, 0)
	_ = os.Symlink("/dev/null", filepath.Join(dir, "fd", "0"))
	for i, inode := range sockets {
		if err := os.Symlink(fmt.Sprintf("socket:[%d]", inode), filepath.Join(dir, "fd", fmt.Sprint(i+3))); err != nil {
			t.Fatal(err)
		}
	}
}

// flags writes a stat with the kernel's flags. The process's name looks like further fields.
func (root fakeProc) flags(t *testing.T, pid int, flags uint64) {
	t.Helper()
	stat := fmt.Sprintf("%d (a) S 1 1 1 0 -1 0 b) S 1 %d %d 0 -1 %d 1 0 0 0\n", pid, pid, pid, flags)
	if err := os.WriteFile(filepath.Join(string(root), fmt.Sprint(pid), "stat"), []byte(stat), 0o644); err != nil {
		t.Fatal(err)
	}
}

// user writes a status.
func (root fakeProc) user(t *testing.T, pid int, uid, effective uint32) {
	t.Helper()
	status := fmt.Sprintf("Name:\tUid:\nUmask:\t0022\nUid:\t%d\t%d\t%d\t%d\nGid:\t0\t0\t0\t0\n", uid, effective, effective, effective)
	if err := os.WriteFile(filepath.Join(string(root), fmt.Sprint(pid), "status"), []byte(status), 0o644); err != nil {
		t.Fatal(err)
	}
}

// network writes a link to a network namespace.
func (root fakeProc) network(t *testing.T, pid string, inode int) {
	t.Helper()
	dir := filepath.Join(string(root), pid, "ns")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(fmt.Sprintf("net:[%d]", inode), filepath.Join(dir, "net")); err != nil {
		t.Fatal(err)
	}
}

// Control groups of version 1 show a thread that exits in the root group, while other
// threads of its process still use the connection.
func TestAProcessThatIsExitingIsNotTakenForTheHosts(t *testing.T) {
	root := fakeProc(t.TempDir())
	root.process(t, 10, "1:name=systemd:/\n0::/system.slice/containerd.service\n", 100)
	p := among(t, root)
	if err := p.checkInode(100); err != nil {
		t.Fatal(err)
	}
	root.flags(t, 10, 0x400100|flagExiting)
	if err := p.checkInode(100); !errors.Is(err, errExiting) {
		t.Errorf("got %v, want %v", err, errExiting)
	}
	if err := os.Remove(filepath.Join(string(root), "10", "stat")); err != nil {
		t.Fatal(err)
	}
	wantReason(t, p.checkInode(100), Unknown)
}

const onHost, inPod = "0::/system.slice/kubelet.service\n", "0::/kubepods/pod" + uid + "/" + id + "\n"

// among returns Peers that see the processes of root. The inode of each peer's socket is the peer's
// port.
func among(t *testing.T, root fakeProc) *Peers {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(string(root), "self"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(string(root), "self", "cgroup"), []byte("0::/system.slice/edgehub.service\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p, err := newPeers(string(root), []uint32{0})
	if err != nil {
		t.Fatal(err)
	}
	p.find = func(_, remote netip.AddrPort) (socket, error) {
		return socket{found: true, state: stateEstablished, inode: uint32(remote.Port())}, nil
	}
	p.state = func(syscall.Conn) (tcpState, error) { return stateEstablished, nil }
	return p
}

func (p *Peers) checkInode(inode uint16) error {
	return p.Check(redirected{&net.TCPConn{}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(inode)}})
}

func TestAllHoldersOfASocketAreChecked(t *testing.T) {
	root := fakeProc(t.TempDir())
	root.process(t, 10, onHost, 100, 101, 101, 102, 103)
	root.process(t, 11, inPod, 101, 200)
	root.process(t, 12, "", 102)
	root.process(t, 13, "torn", 300)
	p := among(t, root)
	for range 2 { // the second time some are known
		if err := p.checkInode(100); err != nil {
			t.Error(err)
		}
		wantReason(t, p.checkInode(300), Unknown)
		wantReason(t, p.checkInode(999), Unknown)
		if r := refusalOf(t, p.checkInode(200)); r.Reason != InContainer || r.PID != 11 || r.In.Pod != uid {
			t.Errorf("%+v", r)
		}
	}
	fresh := among(t, root)
	wantReason(t, fresh.checkInode(101), InContainer)
	fresh = among(t, root)
	wantReason(t, fresh.checkInode(102), Unknown)
}

// Whoever holds millions of files delays nobody if they are not read. Here each process holds root's
// socket in a pod, so that the verdict tells whether its files were read.
func TestFilesOfOtherUsersAndNetworksAreNotRead(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, root fakeProc){
		"of another user": func(t *testing.T, root fakeProc) { root.user(t, 11, 65534, 65534) },
		"inherited by a setuid program of a user's": func(t *testing.T, root fakeProc) { root.user(t, 11, 65534, 0) },
		"of root in a pod's network":                func(t *testing.T, root fakeProc) { root.network(t, "11", 2) },
	} {
		t.Run(name, func(t *testing.T) {
			root := fakeProc(t.TempDir())
			root.process(t, 10, onHost, 100)
			root.process(t, 11, inPod, 100, 101)
			root.network(t, "10", 1)
			root.network(t, "self", 1)
			change(t, root)
			if _, err := os.Lstat(filepath.Join(string(root), "11", "ns")); err != nil {
				root.network(t, "11", 1)
			}
			p := among(t, root)
			if err := p.checkInode(100); err != nil {
				t.Errorf("the files of process 11 were read: %v", err)
			}
			wantReason(t, p.checkInode(101), Unknown) // not the node's
		})
	}
}

func TestKnownProgramsAreScannedFirst(t *testing.T) {
	root := fakeProc(t.TempDir())
	root.process(t, 10, onHost, 100, 101)
	for i := range 3 * maxRecent { // more than are remembered
		root.process(t, 1000+i, inPod, uint32(5000+i))
	}
	p := among(t, root)
	scans := 0
	all := p.procs.all
	p.procs.all = func(s *search) error {
		scans++
		return all(s)
	}
	if err := p.checkInode(100); err != nil || scans != 1 {
		t.Fatalf("%v after %d scans", err, scans)
	}
	for i := range 3 * maxRecent {
		wantReason(t, p.checkInode(uint16(5000+i)), InContainer)
	}
	scans = 0
	if err := p.checkInode(101); err != nil || scans != 0 {
		t.Errorf("the node's own program, after many of pods: %v after %d scans", err, scans)
	}
	wantReason(t, p.checkInode(5000+3*maxRecent-1), InContainer)
	if scans != 0 {
		t.Error("a pod's program that comes again costs a scan")
	}
	// Its number is another's now.
	if err := os.WriteFile(filepath.Join(string(root), "10", "cgroup"), []byte(inPod), 0o644); err != nil {
		t.Fatal(err)
	}
	wantReason(t, p.checkInode(101), InContainer)
}

func TestKnownProgramsAndOtherUsersDoNotWaitForAScan(t *testing.T) {
	root := fakeProc(t.TempDir())
	root.process(t, 10, onHost, 100, 101)
	root.process(t, 11, onHost, 200)
	root.user(t, 11, 1000, 1000)
	root.process(t, 12, onHost, 102)
	p := among(t, root)
	find := p.find
	p.find = func(local, remote netip.AddrPort) (socket, error) {
		s, err := find(local, remote)
		if s.inode >= 200 && s.inode < 300 {
			s.uid = 1000
		}
		return s, err
	}
	if err := p.checkInode(100); err != nil {
		t.Fatal(err)
	}
	anyUser := func(inode int) error {
		return p.CheckAnyUser(redirected{&net.TCPConn{}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: inode}})
	}
	for name, tt := range map[string]struct {
		procs *processes
		slow  int
		quick []int
	}{
		"for a program of the node's": {p.procs, 999, []int{101, 200}},
		"for another user's":          {p.others, 299, []int{101, 102}}, // 102 is of a program that is not known
	} {
		t.Run(name, func(t *testing.T) {
			begun, goOn := make(chan struct{}), make(chan struct{})
			all := tt.procs.all
			tt.procs.all = func(s *search) error {
				close(begun)
				<-goOn
				return all(s)
			}
			defer func() { tt.procs.all = all }()
			slow := make(chan error, 1)
			go func() { slow <- anyUser(tt.slow) }()
			<-begun
			for _, inode := range tt.quick {
				quick := make(chan error, 1)
				go func() { quick <- anyUser(inode) }()
				select {
				case err := <-quick:
					if err != nil {
						t.Error(err)
					}
				case <-time.After(time.Minute):
					t.Errorf("the lookup of socket %d waits for the scan", inode)
				}
			}
			close(goOn)
			wantReason(t, <-slow, Unknown)
		})
	}
}

func TestConcurrentCallersShareTwoScans(t *testing.T) {
	root := fakeProc(t.TempDir())
	root.process(t, 10, onHost, 100)
	p := among(t, root)
	var scans atomic.Int32
	begun, goOn := make(chan struct{}), make(chan struct{})
	all := p.procs.all
	p.procs.all = func(s *search) error {
		if scans.Add(1) == 1 {
			close(begun)
			<-goOn
		}
		return all(s)
	}
	var wg sync.WaitGroup
	ask := func(inode uint16) { wg.Go(func() { _ = p.checkInode(inode) }) }
	ask(1)
	<-begun
	for i := range uint16(50) {
		ask(2 + i)
	}
	deadline := time.Now().Add(10 * time.Second)
	for waiting := 0; waiting < 50; {
		p.procs.mu.Lock()
		if p.procs.next != nil {
			waiting = len(p.procs.next.holders)
		}
		p.procs.mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatal("the others do not wait for one scan")
		}
		runtime.Gosched()
	}
	close(goOn)
	wg.Wait()
	if scans.Load() != 2 {
		t.Errorf("%d scans", scans.Load())
	}
}

// A process that ends while it is read must not be confused with one that reuses its PID.
func TestAReusedPIDIsNotTheSameProcess(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	dir, err := os.OpenRoot(fmt.Sprintf("/proc/%d", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if p := describeProcess(dir, cmd.Process.Pid); p.err != nil || p.comm == "" {
		t.Errorf("while it runs: %+v", p)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if p := describeProcess(dir, cmd.Process.Pid); p.err == nil {
		t.Errorf("after its end: %+v", p)
	}
}
