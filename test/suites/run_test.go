package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// sources are a module with each kind of test that a run has to deal with.
var sources = map[string]string{
	"go.mod": "module example.com/m\n\ngo 1.24\n",
	"good/good_test.go": `package good
import "testing"
func TestGood(t *testing.T) {}
func TestLeftOut(t *testing.T) { t.Skip("not here") }
`,
	"bad/bad_test.go": `package bad
import "testing"
func TestBad(t *testing.T) {
	t.Run("part", func(t *testing.T) { t.Error("got 1, want 2") })
	t.Run("other part", func(t *testing.T) {})
}
`,
	"flaky/flaky_test.go": `package flaky
import ("os"; "testing")
func once(t *testing.T, message string) {
	if _, err := os.Stat(t.Name()); err != nil {
		os.WriteFile(t.Name(), nil, 0o644)
		t.Fatal(message)
	}
}
func TestSlow(t *testing.T) { once(t, "not within 2m0s: the pod is Ready") }
func TestWrong(t *testing.T) { once(t, "read a=1, want a=2") }
`,
	"late/late_test.go": `package late
import "testing"
func Test1(t *testing.T) { t.Fatal("late") }
func Test2(t *testing.T) { t.Fatal("late") }
func Test3(t *testing.T) { t.Fatal("late") }
func Test4(t *testing.T) { t.Fatal("late") }
`,
	"broken/broken_test.go": "package broken\nfunc TestBroken(t *testing.T) {}\n",
	"noexit/noexit_test.go": "package noexit\nimport (\"os\"; \"testing\")\nfunc TestMain(m *testing.M) { println(\"no cluster\"); os.Exit(1) }\nfunc TestNever(t *testing.T) {}\n",
	"panics/panics_test.go": "package panics\nimport \"testing\"\nfunc TestPanics(t *testing.T) { var m map[int]int; m[1] = 1 }\n",
}

// checkoutOf writes sources into a folder, and has the runner keep what it builds in another.
func checkoutOf(t *testing.T, sources map[string]string) (root string) {
	t.Helper()
	cache, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOCACHE", strings.TrimSpace(string(cache))) // not below the folder that follows
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	root = t.TempDir()
	for name, text := range sources {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// play runs suites on a checkout, and returns what was printed and the exit code.
func play(t *testing.T, root string, suites ...suite) (output string, code int) {
	t.Helper()
	log, err := openLog("1234567")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	var out bytes.Buffer
	r := &runner{out: newDisplay(&out), log: log, root: root, commit: "1234567", seed: 42}
	r.build = func(_ context.Context, log io.Writer) (string, error) {
		fmt.Fprintln(log, "   1.0s  building")
		return "", errors.New("no Kubernetes here")
	}
	r.buildInBackground(t.Context(), suites)
	r.suites(t.Context(), suites)
	r.repeat(t.Context())
	code = r.report(t.Context())
	return out.String(), code
}

func tests(name string, args ...string) suite {
	return suite{name: name, steps: []step{{args: args}}}
}

func TestWhatFailsIsSeen(t *testing.T) {
	flaky := tests("flaky", "./flaky")
	exact := tests("exact", "./flaky")
	exact.answers = []string{""}
	for what, c := range map[string]struct {
		suites []suite
		code   int
		has    []string
		not    []string
	}{
		"all is well": {
			[]suite{tests("good", "./good")}, 0,
			[]string{"ok   example.com/m/good", "\ngood   ok", "edgehub: 1 passed, 0 failed, 1 skipped\n"}, []string{"FAIL"},
		},
		"a suite after one that failed runs, and the end names the test": {
			[]suite{tests("bad", "./bad"), tests("good", "./good")}, exitFailed,
			[]string{"got 1, want 2", "once more, alone: example.com/m/bad TestBad", "\nbad    FAILED", "\ngood   ok",
				"FAILED: example.com/m/bad TestBad; to run its suite again: make test-all ONLY=bad", "edgehub: 2 passed, 1 failed, 1 skipped\n"}, nil,
		},
		"what passes alone is flaky, and shown": {
			[]suite{flaky}, 0,
			[]string{"FLAKY example.com/m/flaky TestSlow (suite flaky)", "not within 2m0s: the pod is Ready", "FLAKY: example.com/m/flaky TestWrong", "\nflaky  ok, FLAKY", ", 0 failed"}, nil,
		},
		"a wrong answer is not repeated; what was late is": {
			[]suite{exact}, exitFailed,
			[]string{"FLAKY: example.com/m/flaky TestSlow", "FAILED: example.com/m/flaky TestWrong", "a wrong answer)", "read a=1, want a=2"},
			[]string{"once more, alone: example.com/m/flaky TestWrong"},
		},
		"a panic is not repeated": {
			[]suite{tests("panics", "./panics")}, exitFailed, []string{"FAILED: example.com/m/panics TestPanics", "assignment to entry in nil map"}, []string{"once more"},
		},
		"what more fail than may be flaky are not repeated": {
			[]suite{tests("late", "./late")}, exitFailed, []string{"FAILED: example.com/m/late Test4", "one of 4, more than the 3 that may be flaky"}, []string{"once more"},
		},
		"what does not compile": {
			[]suite{tests("broken", "./broken", "./good")}, exitFailed, []string{"undefined: testing", "FAILED: example.com/m/broken", "ok   example.com/m/good"}, []string{"once more"},
		},
		"what fails before its tests": {
			[]suite{tests("noexit", "./noexit")}, exitFailed, []string{"no cluster", "FAILED: example.com/m/noexit"}, []string{"once more"},
		},
		"a command that fails": {
			[]suite{{name: "lint", steps: []step{{command: []string{"sh", "-c", "echo wrong format; exit 7"}}}}}, exitFailed,
			[]string{"wrong format", "FAILED: sh -c", "exit status 7"}, nil,
		},
		"Kubernetes that cannot be built": {
			[]suite{tests("good", "./good"), {name: "cluster", kubernetes: true, steps: tests("", "./good").steps}}, exitFailed,
			[]string{"\ngood        ok", "\nkubernetes  FAILED", "no Kubernetes here", "\ncluster     ok"}, nil,
		},
	} {
		t.Run(what, func(t *testing.T) {
			out, code := play(t, checkoutOf(t, sources), c.suites...)
			if code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			for _, words := range c.has {
				if !strings.Contains(out, words) {
					t.Errorf("%q is not in it", words)
				}
			}
			for _, words := range c.not {
				if strings.Contains(out, words) {
					t.Errorf("%q is in it", words)
				}
			}
			if t.Failed() {
				t.Log(out)
			}
		})
	}
}

// Many flaky tests at once fail the run.
func TestTooManyAreFlaky(t *testing.T) {
	r := &runner{results: []result{{failures: []*failure{{flaky: true}, {flaky: true}, {flaky: true}, {flaky: true}}}}}
	var out bytes.Buffer
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	log, err := openLog("1234567")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	r.out, r.log = newDisplay(&out), log
	if code := r.report(t.Context()); code != exitFailed || !strings.Contains(out.String(), "4 tests are flaky, more than 3") {
		t.Errorf("exit code %d: %s", code, out.String())
	}
}

// What waits has what computes beside it; a quiet suite, and one that starts nodes, has none of either kind.
func TestSuitesThatWaitHaveOthersBesideThem(t *testing.T) {
	root := checkoutOf(t, map[string]string{})
	shell := func(name, command string) suite {
		return suite{name: name, steps: []step{{command: []string{"sh", "-c", command}}}}
	}
	node := shell("node", "until test -e computed; do sleep 0.01; done; touch waited")
	node.waits = true
	uninstall := shell("uninstall", "test -e waited; until test -e more; do sleep 0.01; done; touch all")
	uninstall.waits = true
	measured := shell("measured", "test -e all")
	measured.quiet = true
	out, code := play(t, root, node, uninstall, shell("unit", "touch computed"), shell("cache", "touch more"), measured)
	if code != 0 {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

// Whoever waits sees after ten seconds what is going on.
func TestSilenceIsBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		d := newDisplay(&out)
		stop := d.keep()
		unit, end := d.begin("unit")
		_, endKubernetes := d.begin("Kubernetes")
		time.Sleep(7 * time.Second)
		fmt.Fprintln(d, "ok   cache 6.0s")
		d.count(unit, "1 package")
		time.Sleep(11 * time.Second)
		end()
		time.Sleep(10 * time.Second)
		endKubernetes()
		time.Sleep(time.Minute)
		stop()
		want := "ok   cache 6.0s\n… unit: 16 s, 1 package; Kubernetes: 16 s\n… Kubernetes: 25 s\n"
		if out.String() != want {
			t.Errorf("got\n%swant\n%s", out.String(), want)
		}
	})
}
