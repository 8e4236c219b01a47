//go:build linux

package peer

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestScansForUnknownProgramsTakeAFractionOfACore(t *testing.T) {
	root := fakeProc(t.TempDir())
	root.process(t, 10, onHost, 100)
	for name, tt := range map[string]struct{ scan, rest time.Duration }{
		"few processes":  {10 * time.Millisecond, 30 * time.Millisecond},
		"many processes": {time.Second, maxPause},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := among(t, root)
				all := p.procs.all
				p.procs.all = func(root string, holders map[uint32][]*process) error {
					time.Sleep(tt.scan)
					return all(root, holders)
				}
				if err := p.checkInode(100); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				if err := p.checkInode(100); err != nil || !time.Now().Equal(began) {
					t.Errorf("a program that is known waited %v (%v)", time.Since(began), err)
				}
				const looks = 5
				for i := range looks {
					wantReason(t, p.checkInode(uint16(1000+i)), Unknown)
				}
				if took, want := time.Since(began), looks*(tt.scan+tt.rest); took != want {
					t.Errorf("%d looks took %v, want %v", looks, took, want)
				}
			})
		})
	}
}
