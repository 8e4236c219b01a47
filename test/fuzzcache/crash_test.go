package fuzzcache

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/test/internal/hubproc"
	"github.com/edgehub-io/edgehub/test/internal/metric"
	"github.com/edgehub-io/edgehub/test/internal/poll"
	"github.com/edgehub-io/edgehub/test/internal/rawclient"
)

// crashes are a mode: the hub is killed again and again under load, its files are damaged, its disk is full.
var crashes = mode{ //nolint:gochecknoglobals // never changed
	pause: 2 * time.Second,
	first: []fault{written, damaged, starting, full, killed, wasFull},
	faults: []weighted{
		{2, killed}, {2, written}, {1, starting}, {5, damaged}, {2, full}, {1, wasFull},
		{1, (*world).cut},
	},
	disk:  24,
	least: map[string]float64{"crashes": 4, "lists, offline": 50, "gets, offline": 50, "watch events": 300, "writes by clients": 20},
}

// The ways to crash. See crashed.
var (
	killed   = crashed("killed", nil, nil)
	written  = crashed("killed when all was written", (*world).awaitDisk, nil)
	starting = crashed("killed while it starts", nil, (*world).killStarting)
	damaged  = crashed("damaged files", nil, (*world).damageStore)
	full     = crashed("a full disk", (*world).fillDisk, nil)
	wasFull  = crashed("a disk that was full for a while", (*world).fillDiskForAWhile, nil)
)

// TestWhateverHappensToTheHubNoAnswerIsWrong kills the hub for SECONDS under load, and damages its files. It is
// started without the cloud after each, and its users read all there is. In the end the cloud stays for long
// enough, and after one more kill all that is watched can be read without it.
func TestWhateverHappensToTheHubNoAnswerIsWrong(t *testing.T) {
	s := newSession(t, &crashes)
	s.playFor(s.length, 1)
	s.playOn(2)
	s.end(false)
	s.survives()
}

// crashed returns a fault: something is done under load, the hub is killed, something is done while it does not run,
// and it starts without the cloud.
func crashed(name string, before, down func(*world, *rand.Rand)) fault {
	return func(w *world, _ context.Context, r *rand.Rand) {
		w.note("a crash: %s", name)
		if before != nil {
			before(w, r)
		}
		var mend func()
		w.whileDown(true, func() {
			if down != nil {
				down(w, r)
			}
			if r.IntN(3) == 0 {
				w.copyStore()
			}
			mend = w.cutOff(false)
		})
		w.look(r)
		w.freeDisk()
		mend()
		w.did("crashes")
		w.did("crashes: " + name)
	}
}

// whileDown ends the hub, as a crash would or in order, does something, and starts it again.
func (w *world) whileDown(kill bool, do func()) {
	w.note("the hub ends; killed: %t", kill)
	ended := w.log.during(&w.log.trouble, hubIsDown)
	if kill {
		w.did("kills")
		w.kill()
	} else {
		w.did("restarts in order")
		w.hub.Stop()
	}
	w.forgetSpoiled()
	do()
	w.hub.Start()
	ended()
	w.note("the hub serves")
}

// kill ends the hub as a crash would, and notes what it may have lost.
func (w *world) kill() {
	w.hub.Kill()
	lost := w.disk.lostBy(time.Now())
	w.disk.written = time.Time{}
	for _, u := range w.users {
		u.sight.killed(lost)
	}
	w.statuses.lost(lost.from)
}

// disk is what is known of the hub's.
type disk struct {
	own     bool      // it may be filled
	written time.Time // what was seen before is there; zero is not known
	full    time.Time // since when it was full last; zero: never
	freed   time.Time // since when it is not; zero: it is full
}

// lostBy is what a hub may have lost that was killed at a time: all since the disk was full, if it may not have been
// written yet, or what was seen shortly before.
func (d disk) lostBy(kill time.Time) loss {
	lost := loss{from: kill.Add(-lossBeforeKill), at: kill}
	switch {
	case !d.full.IsZero() && (d.freed.IsZero() || kill.Sub(d.freed) < lossBeforeKill):
		lost.from = d.full.Add(-lossBeforeKill)
	case d.written.After(lost.from):
		lost.from = d.written
	}
	return lost
}

// look has all users read all that they do, each list in some form.
func (w *world) look(r *rand.Rand) {
	var all sync.WaitGroup
	for _, u := range w.users {
		own := rand.New(rand.NewPCG(r.Uint64(), 0))
		all.Go(func() {
			c := u.newClient("look", u.name != "node")
			defer c.http.CloseIdleConnections()
			for _, q := range u.queries {
				c.listAs(w.t.Context(), own, q, forms[own.IntN(len(forms))])
				c.get(w.t.Context(), own)
			}
		})
	}
	all.Wait()
}

// handedOver is how long after its client has seen it the hub may still be about to hand something to what
// writes it.
const handedOver = 2 * time.Second

// awaitDisk waits until all that was seen up to now is on disk: until two more commits, of which one may have been
// under way, or longer than commits are apart without one, since nothing is left to write.
func (w *world) awaitDisk(*rand.Rand) {
	began, commits, since := time.Now(), w.commits(), time.Now()
	last := commits
	poll.Eventually(w.t, "all that was seen is on disk", func() bool {
		if now := w.commits(); now != last {
			last, since = now, time.Now()
		}
		return last >= commits+2 || time.Since(since) > 5*time.Second+handedOver
	})
	w.disk.written = began.Add(-handedOver)
}

// commits is how often the hub has written to its disk.
func (w *world) commits() int {
	_, text := rawclient.Ask(w.t.Context(), http.MethodGet, w.hub.API+"/metrics")
	n, _, err := metric.Sum(text, "edgehub_cache_commits_total", `result="ok"`)
	w.must(err)
	return int(n) // 0: not one yet
}

// killStarting starts the hub, which does not run, and kills it before it serves.
func (w *world) killStarting(r *rand.Rand) {
	log, err := os.OpenFile(w.hub.Log, os.O_APPEND|os.O_WRONLY, 0)
	w.must(err)
	defer log.Close()
	for range 1 + r.IntN(3) {
		cmd := exec.Command(w.command[0], w.command[1:]...)
		cmd.Stdout, cmd.Stderr = log, log
		exited, err := hubproc.StartAndWait(cmd)
		w.must(err)
		pause(w.t.Context(), time.Duration(r.IntN(80))*time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			w.report("a hub that ends while it starts", "%v", err)
		}
		<-exited
	}
}

// start starts the hub for the first time.
func (w *world) start() {
	w.hub.Start()
	line, err := os.ReadFile("/proc/" + strconv.Itoa(w.hub.Pid()) + "/cmdline")
	w.must(err)
	w.command = strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
}

func (w *world) ballast() string { return filepath.Join(w.hub.Root, "ballast") }

// fillDisk leaves no byte free, where the hub has a disk for itself.
func (w *world) fillDisk(r *rand.Rand) {
	if !w.disk.own {
		return
	}
	w.disk.full, w.disk.freed = time.Now(), time.Time{}
	file, err := os.OpenFile(w.ballast(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	w.must(err)
	defer file.Close()
	for size := 1 << 20; size > 0; size /= 2 {
		for err = nil; err == nil; {
			_, err = file.Write(make([]byte, size))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			w.must(err)
		}
	}
	w.did("disks filled")
	pause(w.t.Context(), time.Duration(r.IntN(1000))*time.Millisecond)
}

func (w *world) fillDiskForAWhile(r *rand.Rand) {
	w.fillDisk(r)
	w.freeDisk()
	pause(w.t.Context(), time.Duration(r.IntN(1000))*time.Millisecond)
}

func (w *world) freeDisk() {
	err := os.Remove(w.ballast())
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	w.must(err)
	w.disk.freed = time.Now()
}

// survives has the hub write what there is, kills it, and wants all that is watched to be there without the cloud:
// as it was last.
func (s *session) survives() {
	s.t.Helper()
	s.awaitDisk(nil)
	var mend func()
	s.whileDown(true, func() { mend = s.cutOff(false) })
	for _, f := range s.followers {
		if f.f.table() {
			continue // it is not kept
		}
		a := f.c.do(s.t.Context(), http.MethodGet, f.q.path(), f.f.accept(true), "", nil)
		if a.code != http.StatusOK {
			s.report("what was watched cannot be read after a crash", "%s, %s: %v", f.c.name, f.what, a)
		}
	}
	s.look(s.random(10))
	mend()
}
