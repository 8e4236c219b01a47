package log_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/edgehub-io/edgehub/cache/log"
)

// Invariant 15: one bit costs at most the body that it is in.
func TestAnySingleBitCostsAtMostItsBody(t *testing.T) {
	for name, opts := range options() {
		for what, due := range map[string]int64{"with checkpoints": 1, "without": 1 << 30} {
			t.Run(name+" "+what, func(t *testing.T) {
				t.Parallel()
				dir := filepath.Join(fast(t), "cache")
				h := record(t, opts, due)
				last := len(h.files) - 1
				file, bodies := h.files[last], 0
				for at := 0; at < len(file); at++ {
					if at%(slots/2) >= 256 && at < slots {
						continue // between the slots
					}
					bits := []int{at % 8}
					if due > 1 && opts.Key == nil {
						bits = []int{0, 1, 2, 3, 4, 5, 6, 7} // no bit is spared; the others have the same parts
					}
					for _, bit := range bits {
						file[at] ^= 1 << bit
						state, damaged, lost := h.reopen(t, dir, opts, file)
						file[at] ^= 1 << bit
						if state != last || damaged > 2 || lost { // the rows pods/pod-02 and entries/pod-02 have one body in common
							t.Fatalf("bit %d of byte %d of %d: state %d of %d, %d damaged, lost %v", bit, at, len(file), state, last, damaged, lost)
						}
						bodies += damaged
					}
				}
				if bodies == 0 {
					t.Error("no body was damaged: this test shows nothing")
				}
			})
		}
	}
}

// More than that may cost commits, but the owner knows, unless the file looks as it did before the last of them.
func TestWhateverIsZeroedDoubledOrCutIsNeverWrong(t *testing.T) {
	for what, due := range map[string]int64{"with checkpoints": 1, "without": 1 << 30} {
		t.Run(what, func(t *testing.T) {
			dir := filepath.Join(fast(t), "cache")
			h := record(t, log.Options{}, due)
			last := len(h.files) - 1
			whole := h.files[last]
			random := rand.New(rand.NewPCG(1, uint64(due)))
			saw := map[string]int{}
			for range 2000 {
				file := bytes.Clone(whole)
				from := random.IntN(len(file))
				if random.IntN(4) > 0 { // most of the file is the header
					from = slots + random.IntN(len(file)-slots)
				}
				to := min(from+1+random.IntN(1500), len(file))
				switch random.IntN(4) {
				case 0:
					clear(file[from:to])
				case 1:
					for i := from; i < to; i++ {
						file[i] = byte(random.Uint32())
					}
				case 2: // the same twice
					file = append(bytes.Clone(file[:to]), file[from:]...)
					to = len(whole)
				case 3: // cut out
					file = append(file[:from], file[to:]...)
					to = len(whole) // what is in another place is not valid
				}
				state, _, lost := h.reopen(t, dir, log.Options{}, file)
				switch {
				case lost:
					saw["lost"]++
				case state == last:
					saw["whole"]++
				case state >= 0 && from < len(h.files[state+1]) && to > len(h.files[last])-tail:
					saw["earlier"]++
				default:
					t.Fatalf("%d to %d of %d (%d): state %d", from, to, len(whole), len(file), state)
				}
			}
			if saw["lost"] == 0 || saw["whole"] == 0 || saw["earlier"] == 0 && due > 1 {
				t.Errorf("got %v: this test shows nothing", saw)
			}
		})
	}
}

// tail is more than the size of a record in these files.
const tail = 250

// A frame's header has its length: if that is damaged, the frames behind it are found nevertheless.
func TestAWrongLengthInTheMiddleCostsNothing(t *testing.T) {
	dir := filepath.Join(fast(t), "cache")
	h := record(t, log.Options{}, 1<<30)
	last := len(h.files) - 1
	found := 0
	for at := slots; at+8 < len(h.files[last]); at++ {
		if !bytes.Equal(h.files[last][at:at+3], []byte{0x65, 0x67, 0xb7}) {
			continue
		}
		for _, length := range []byte{0, 1, 0xff} {
			file := bytes.Clone(h.files[last])
			file[at+5] = length
			file[at+7] = length
			if state, damaged, lost := h.reopen(t, dir, log.Options{}, file); state != last || damaged > 0 || lost {
				t.Errorf("frame at %d with length %d: state %d, %d damaged, lost %v", at, length, state, damaged, lost)
			}
			found++
		}
	}
	if found < 3*2*len(h.files)-1 {
		t.Errorf("only %d frames were found", found/3)
	}
}

// An older copy of the file, as from a backup, is a complete earlier state, and the log goes on from there.
func TestAnOlderCopyOfTheFileIsAnEarlierState(t *testing.T) {
	for name, opts := range options() {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(fast(t), "cache")
			h := record(t, opts, 1)
			last := len(h.files) - 1
			for n, file := range h.files {
				if state, damaged, lost := h.reopen(t, dir, opts, file); state != n || damaged > 0 || lost {
					t.Errorf("copy %d: state %d, %d damaged, lost %v", n, state, damaged, lost)
				}
				// A copy of a part: the header is of one time, and the rest of another.
				mixed := append(bytes.Clone(file[:slots]), h.files[last][slots:]...)
				if state, damaged, lost := h.reopen(t, dir, opts, mixed); state != last || damaged > 0 || lost {
					t.Errorf("the header of copy %d: state %d, %d damaged, lost %v", n, state, damaged, lost)
				}
			}
		})
	}
}

// A checkpoint is exact only with the commit behind it. It was synced before a slot named the checkpoint, so it cannot be torn.
func TestACheckpointWithoutItsCommitIsALoss(t *testing.T) {
	for name, opts := range options() {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(fast(t), "cache")
			h := record(t, opts, 1)
			last := len(h.files) - 1
			front := bytes.LastIndex(h.files[last], []byte{0x65, 0x67, 0xb7, 0xc0})
			for what, file := range map[string][]byte{
				"cut off": h.files[last][:front],
				"zeroed":  append(bytes.Clone(h.files[last][:front]), make([]byte, len(h.files[last])-front)...),
			} {
				if state, _, lost := h.reopen(t, dir, opts, file); !lost {
					t.Errorf("%s: state %d of %d, and nothing was lost", what, state, last)
				}
				writeFile(t, dir, file)
				o := open(t, dir, opts)
				o.change(t, put("pods", "next", "1", "next"))
				o.flush(t)
				want := o.state()
				o.close(t)
				o = open(t, dir, opts)
				o.mustBe(t, want)
				o.close(t)
			}
		})
	}
}

// Whoever must know of a loss may be killed before it has written what follows from it.
func TestALossIsKnownUntilItsConsequencesAreCommitted(t *testing.T) {
	h := record(t, log.Options{}, 1<<30)
	dir := filepath.Join(fast(t), "cache")
	file := bytes.Clone(h.files[len(h.files)-1])
	clear(file[len(h.files[1]):len(h.files[3])]) // two commits
	writeFile(t, dir, file)
	for range 3 {
		o := open(t, dir, log.Options{})
		if len(o.lost) != 1 || !errors.Is(o.lost[0], log.ErrCorrupt) || !strings.Contains(o.lost[0].Error(), "commits") {
			t.Fatalf("lost: %v", o.lost)
		}
		o.close(t)
	}
	synctest.Test(t, func(t *testing.T) {
		o := open(t, dir, log.Options{})
		o.change(t, put("doubts", "everything", "1"))
		stop := o.run(t)
		synctest.Wait() // a file that lacks commits is replaced at once
		stop()
		want := o.state()
		o = open(t, dir, log.Options{})
		o.mustBeWhole(t, want)
		o.close(t)
	})
}

// What an earlier process has written is compared with what is given.
func TestABodyThatIsGivenAgainMendsDamage(t *testing.T) {
	for name, read := range map[string]bool{"somebody has found the damage": true, "nobody has": false} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			o := open(t, dir, log.Options{})
			body := text("a pod", 1000)
			o.change(t, put("pods", "a", "1", body), put("pods", "b", "1", "b"))
			o.flush(t)
			o.change(t, put("pods", "c", "1", "c"))
			o.flush(t)
			if err := o.log.Rewrite(); err != nil { // behind a checkpoint damage is found at the start
				t.Fatal(err)
			}
			o.close(t)
			file := readFile(t, dir)
			file[bytes.Index(file, []byte(body))+500] ^= 1
			writeFile(t, dir, file)
			o = open(t, dir, log.Options{})
			sum := log.SumOf([]byte(body))
			if o.log.Holds(sum) {
				t.Error("it is not known that the body is whole")
			}
			for n := 0; read && n < 2; n++ {
				if o.damaged(t) != 1 {
					t.Error("the damage is not found")
				}
			}
			o.change(t, put("pods", "a", "1", body))
			o.flush(t)
			o.mustBeWhole(t, o.state())
			if len(o.found) != 1 || o.found[0] != sum || !o.log.Holds(sum) {
				t.Errorf("%d were found damaged", len(o.found))
			}
			want := o.state()
			o.close(t)
			open(t, dir, log.Options{}).mustBeWhole(t, want)
		})
	}
}

// A new file is where damage is found that nobody has read.
func TestANewFileLeavesOutWhatIsDamaged(t *testing.T) {
	for name, before := range map[string]bool{"before the last checkpoint": true, "behind it": false} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			o := open(t, dir, log.Options{})
			body := text("a pod", 1000)
			o.change(t, put("pods", "a", "1", body), put("pods", "b", "1", "b"))
			o.flush(t)
			if before {
				if err := o.log.Rewrite(); err != nil {
					t.Fatal(err)
				}
			}
			o.close(t)
			file := readFile(t, dir)
			file[bytes.Index(file, []byte(body))+500] ^= 1
			writeFile(t, dir, file)
			o = open(t, dir, log.Options{})
			if err := o.log.Rewrite(); err != nil {
				t.Fatal(err)
			}
			if len(o.found) != 1 || o.found[0] != log.SumOf([]byte(body)) {
				t.Errorf("%d were found damaged", len(o.found))
			}
			if o.damaged(t) != 1 || bytes.Contains(readFile(t, dir), []byte(body[600:])) {
				t.Error("the new file has it")
			}
		})
	}
}

// Bytes of a body that look like a frame are not taken for one when damage is skipped.
func TestBytesOfBodiesAreNotTakenForCommits(t *testing.T) {
	dir := t.TempDir()
	o := open(t, dir, log.Options{})
	o.change(t, put("pods", "a", "1", "one"))
	o.flush(t)
	file := readFile(t, dir)
	o.change(t, remove("pods", "a"), put("pods", "forged", "1", string(file[slots:])))
	o.flush(t)
	before := len(file)
	o.change(t, put("pods", "b", "1", "b"))
	o.flush(t)
	want := o.state()
	o.close(t)
	file = readFile(t, dir)
	clear(file[before : before+24]) // the header of the frame before the bytes
	writeFile(t, dir, file)
	open(t, dir, log.Options{}).mustBeWhole(t, want)
}

// FuzzLog opens any bytes as a log.
func FuzzLog(f *testing.F) {
	dir := f.TempDir()
	o := open(f, dir, log.Options{})
	o.change(f, put("pods", "a", "1", "one"), put("pods", "b", "1", "two"))
	o.flush(f)
	o.close(f)
	f.Add(readFile(f, dir))
	f.Add([]byte("edgehub\n"))
	f.Fuzz(func(t *testing.T, file []byte) {
		dir := t.TempDir()
		writeFile(t, dir, file)
		o, err := tryOpen(t, dir, log.Options{})
		if errors.Is(err, log.ErrKey) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		o.damaged(t)
		o.change(t, drop("pods"), put("pods", "c", "1", "three"))
		o.flush(t)
		want := o.state()
		o.close(t)
		o = open(t, dir, log.Options{})
		if got := o.state()["pods"]; len(got) != 1 || len(want["pods"]) != 1 {
			t.Fatalf("got %v, want %v", got, want)
		}
		o.close(t)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	})
}
