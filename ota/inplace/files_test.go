package inplace_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/ota/inplace"
)

// A file may be whole and make no sense: of a bad block, of a later hub, or written by hand.
func TestARecordThatMakesNoSenseIsSetAside(t *testing.T) {
	for name, change := range map[string][2]string{
		"null":                       {"", "null"},
		"nothing":                    {"", "{}"},
		"a state that is not known":  {`"state":"Shown"`, `"state":"Later"`},
		"no UID":                     {`"uid":"u"`, `"uid":""`},
		"no pod":                     {`"Name":"web"`, `"Name":""`},
		"no images":                  {`"images":[{`, `"images":[],"x":[{`},
		"no new image":               {`"to":"app:v2"`, `"to":""`},
		"the same image":             {`"to":"app:v2"`, `"to":"app:v1"`},
		"nothing of its containers":  {`"containers":`, `"x":`},
		"another container is tried": {`"containers":[{"name":"app"`, `"containers":[{"name":"side"`},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.begin(t)
			file := filepath.Join(r.dir, "ns_u.json")
			text, err := os.ReadFile(file)
			if err != nil || !strings.Contains(string(text), change[0]) {
				t.Fatalf("%s, %v", text, err)
			}
			changed := change[1]
			if change[0] != "" {
				changed = strings.Replace(string(text), change[0], change[1], 1)
			}
			if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
				t.Fatal(err)
			}
			r.lost(t, file)
			r.open(t)
			r.lost(t, file+".damaged")
			if !r.Idle() || r.shows("10") != was {
				t.Errorf("kubelet is shown %s", r.shows("10"))
			}
			if _, err := os.Stat(file + ".damaged"); err != nil {
				t.Error(err)
			}
			r.begin(t) // it is no obstacle
		})
	}
}

func TestACopyOfARecordIsNotRead(t *testing.T) {
	r := newRig(t)
	r.begin(t)
	if err := os.Rename(filepath.Join(r.dir, "ns_u.json"), filepath.Join(r.dir, "ns_v.json")); err != nil {
		t.Fatal(err)
	}
	if r.open(t); !r.Idle() {
		t.Errorf("it counts: %v", r.States())
	}
	r.lost(t, filepath.Join(r.dir, "ns_v.json"))
}

// lost fails if not this file alone may be of a pod that runs what the cloud does not have.
func (r *rig) lost(t *testing.T, file string) {
	t.Helper()
	if pods, lost, err := inplace.ReadUnreconciled(r.dir); len(pods) > 0 || !slices.Equal(lost, []string{file}) || err != nil {
		t.Errorf("on disk: %v %v %v", pods, lost, err)
	}
}

// The hub has more to do than this.
func TestAFolderThatCannotBeReadHasNothingUpgraded(t *testing.T) {
	r := newRig(t)
	r.breakDisk(t)
	registry := prometheus.NewRegistry()
	j, err := inplace.Open(inplace.Options{Dir: r.dir, Online: func() bool { return false }, Changed: func() {}, Registerer: registry, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Begin(pod(), target); !isNotPossible(err) || !j.Idle() {
		t.Errorf("an upgrade that the next hub may not read: %v", err)
	}
	if metrics, err := registry.Gather(); err != nil || len(metrics) != 1 || !strings.Contains(metrics[0].String(), "Damaged") {
		t.Errorf("%v, %v", metrics, err)
	}
}

// Each second, it is tried again.
func TestADiskThatIsFullIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines strings.Builder
		r := newRig(t)
		r.begin(t)
		var err error
		r.Journal, err = inplace.Open(inplace.Options{
			Dir: r.dir, Online: func() bool { return false }, Changed: func() {}, Event: func(*corev1.ObjectReference, string, string, string) {},
			Logger: slog.New(slog.NewTextHandler(&lines, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			mend := r.breakDisk(t)
			r.run(t, 20*time.Second)
			mend()
			r.run(t, 20*time.Second)
		}
		if n := strings.Count(lines.String(), "cannot be written down"); n != 2 {
			t.Errorf("logged %d times, want once each time that it is full:\n%s", n, &lines)
		}
	})
}

func TestADamagedRecordShowsTheCloudsPod(t *testing.T) {
	r := newRig(t)
	r.begin(t)
	if err := os.WriteFile(filepath.Join(r.dir, "ns_u.json"), []byte(`{"state":"Sho`), 0o600); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	j, err := inplace.Open(inplace.Options{Dir: r.dir, Online: func() bool { return false }, Changed: func() {}, Registerer: registry, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if got := j.Images("u", "10", map[string]string{"app": was}); got != nil {
		t.Errorf("kubelet is shown %v", got)
	}
	const want = `
# HELP edgehub_offline_upgrades Pods that were upgraded in place without the cloud, by state; Damaged are records that could not be read, and whose pods run as the cloud has them.
# TYPE edgehub_offline_upgrades gauge
edgehub_offline_upgrades{state="Confirmed"} 0
edgehub_offline_upgrades{state="Damaged"} 1
edgehub_offline_upgrades{state="Offered"} 0
edgehub_offline_upgrades{state="Passed"} 0
edgehub_offline_upgrades{state="Probation"} 0
edgehub_offline_upgrades{state="Shown"} 0
edgehub_offline_upgrades{state="Undoing"} 0
edgehub_offline_upgrades{state="Undone"} 0
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
