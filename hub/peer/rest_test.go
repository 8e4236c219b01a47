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
	root.process(t, 11, inPod, 200, 201)
	for name, tt := range map[string]struct{ scan, rest time.Duration }{
		"few processes":  {10 * time.Millisecond, 30 * time.Millisecond},
		"many processes": {time.Second, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := among(t, root)
				all := p.procs.all
				p.procs.all = func(s *search) error {
					time.Sleep(tt.scan)
					return all(s)
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
				wantReason(t, p.checkInode(200), InContainer)
				began = time.Now()
				wantReason(t, p.checkInode(201), InContainer) // its program is looked at first, but may hold many files
				if took := time.Since(began); took != tt.rest {
					t.Errorf("a pod's program that comes again waited %v, want %v", took, tt.rest)
				}
			})
		})
	}
}
