package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"gotest.tools/gotestsum/testjson"

	"github.com/edgehub-io/edgehub/test/cluster"
)

// keptLogs is how many logs of earlier runs are kept.
const keptLogs = 20

// runner runs suites and remembers what became of them.
type runner struct {
	out    *display // for whoever waits: a line for each package, failures, the table
	log    *logFile // everything
	root   string   // the checkout
	commit string   // "b7be4e3", with a + if there are changes besides
	seed   int
	env    []string // of all that is started

	mu      sync.Mutex
	results []result // in the order in which they ended
	tests   counts

	kubernetes *background // nil if no suite takes it
	build      func(ctx context.Context, log io.Writer) (string, error)

	repeating bool // the tests that failed
}

// counts are of tests, subtests included.
type counts struct{ passed, skipped int }

// result is what became of one suite.
type result struct {
	suite    suite
	took     time.Duration
	machine  load
	remark   string // in place of the machine's load
	notRun   string // the reason
	failures []*failure
}

func newRunner(ctx context.Context, seed int, out io.Writer) (*runner, error) {
	root, err := checkout(ctx)
	if err != nil {
		return nil, err
	}
	r := &runner{out: newDisplay(out), root: root, seed: seed, commit: describe(ctx, root), build: cluster.BuildKubernetes}
	if r.log, err = openLog(r.commit); err != nil {
		return nil, err
	}
	fmt.Fprintln(out, "the whole log:", r.log.Name())
	return r, nil
}

// describe names the commit of a checkout.
func describe(ctx context.Context, root string) string {
	git := func(args ...string) string {
		out, _ := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...).Output()
		return strings.TrimSpace(string(out))
	}
	commit := git("rev-parse", "--short=7", "HEAD")
	if commit == "" {
		return "unknown"
	}
	if git("status", "--porcelain") != "" {
		commit += "+"
	}
	return commit
}

// logFile is written by the readers of a command's two streams at once.
type logFile struct {
	mu sync.Mutex
	*os.File
}

func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.File.Write(p)
}

func openLog(commit string) (*logFile, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("find the cache folder: %w", err)
	}
	folder := filepath.Join(cache, "edgehub", "logs")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	old, err := filepath.Glob(filepath.Join(folder, "*.log")) // sorted, and their names begin with the time
	if err != nil {
		return nil, err
	}
	for _, name := range old[:max(0, len(old)-keptLogs+1)] {
		_ = os.Remove(name)
	}
	name := fmt.Sprintf("%s-%s.log", time.Now().UTC().Format("20060102T150405"), strings.TrimSuffix(commit, "+"))
	file, err := os.Create(filepath.Join(folder, name))
	return &logFile{File: file}, err
}

// suites runs suites in two rows, beside each other: those that wait, and the others, of which one
// runs at a time in their order. A quiet suite has the machine for itself. One that starts nodes
// has no other such beside it: their names are the same.
func (r *runner) suites(ctx context.Context, chosen []suite) {
	waiting := make(chan struct{}) // closed when what is in that row has ended
	close(waiting)
	for _, s := range chosen {
		switch {
		case s.waits:
			before, done := waiting, make(chan struct{})
			waiting = done
			go func() {
				defer close(done)
				<-before
				r.suite(ctx, s)
			}()
			continue
		case s.quiet || s.nodes:
			<-waiting
		}
		r.suite(ctx, s)
	}
	<-waiting
	r.reportKubernetes()
}

// suite runs all steps of a suite, also after one has failed.
func (r *runner) suite(ctx context.Context, s suite) {
	if s.kubernetes {
		r.kubernetes.await(s)
	}
	res := result{suite: s}
	defer func() { r.ended(res) }()
	if ctx.Err() != nil {
		res.notRun = "interrupted"
		return
	}
	r.say("\n== %s: %s", s.name, s.what)
	if s.root && os.Geteuid() != 0 {
		res.notRun = "needs root"
		r.say("NOT RUN: it needs root")
		return
	}
	began, before := time.Now(), look()
	if s.nodes {
		r.clean(ctx, s, &res)
		defer r.clean(ctx, s, &res)
	}
	for _, st := range s.prepared() {
		res.failures = append(res.failures, r.step(ctx, s, st)...)
	}
	res.took, res.machine = time.Since(began), look().since(before)
	if len(res.failures) > 0 {
		r.say("-- %s failed, %s", s.name, res.machine)
	}
}

func (r *runner) ended(res result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results = append(r.results, res)
}

// step runs a command or tests, and returns what failed.
func (r *runner) step(ctx context.Context, s suite, st step) []*failure {
	if len(st.args) > 0 {
		return r.goTest(ctx, s, st, st.args)
	}
	what := strings.Join(st.command, " ")
	_, end := r.out.begin(s.name + ": " + what)
	defer end()
	if err := r.run(ctx, s, st); err != nil {
		r.say("FAIL %s", what)
		return []*failure{{suite: s, step: st, pkg: what, output: err.Error() + "\n"}}
	}
	r.say("ok   %s", what)
	return nil
}

func (r *runner) start(ctx context.Context, s suite, st step, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = filepath.Join(r.root, st.dir)
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED="+cgo(st)), r.env...)
	for name, value := range s.environment(r.seed) {
		if _, set := os.LookupEnv(name); !set {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	fmt.Fprintf(r.log, "+ cd %s; %s %s\n", filepath.Join(".", st.dir), name, strings.Join(args, " "))
	return cmd
}

// cgo is on for the race detector alone: without it, what is compiled for the programs need not be
// compiled again for tests.
func cgo(st step) string {
	if slices.Contains(st.args, "-race") {
		return "1"
	}
	return "0"
}

// run runs a command. What it prints goes into the log, and into the error.
func (r *runner) run(ctx context.Context, s suite, st step) error {
	out, err := r.start(ctx, s, st, st.command[0], st.command[1:]...).CombinedOutput()
	_, _ = r.log.Write(out)
	if err != nil {
		return fmt.Errorf("%s%s: %w", out, strings.Join(st.command, " "), err)
	}
	return nil
}

// goTest runs go test. What it returns are the root tests that failed, and packages that failed
// outside of any test.
//
// Vet is off, since the suite vet has it for all packages.
func (r *runner) goTest(ctx context.Context, s suite, st step, args []string) []*failure {
	all := []string{"test", "-json", "-vet=off", "-timeout=" + testTimeout.String()}
	if !st.cached || r.repeating {
		all = append(all, "-count=1")
	}
	cmd := r.start(ctx, s, st, "go", append(all, args...)...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return []*failure{{suite: s, step: st, pkg: "go test", output: err.Error()}}
	}
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return []*failure{{suite: s, step: st, pkg: "go test", output: err.Error()}}
	}
	activity, end := r.out.begin(s.name)
	defer end()
	events := &events{runner: r, activity: activity}
	execution, scanErr := testjson.ScanTestOutput(testjson.ScanConfig{
		Stdout: stdout, Stderr: stderr, Handler: events, IgnoreNonJSONOutputLines: true,
	})
	err = errors.Join(scanErr, cmd.Wait())
	failures := collect(s, st, execution)
	r.count(execution)
	if err != nil && len(failures) == 0 { // what does not compile, or go test itself
		failures = append(failures, &failure{suite: s, step: st, pkg: "go test " + strings.Join(args, " "), output: events.text() + err.Error() + "\n"})
	}
	for _, f := range failures {
		if f.test == "" {
			f.output = events.text() + f.output
		}
	}
	return failures
}

// count counts each test once.
func (r *runner) count(execution *testjson.Execution) {
	if r.repeating {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, pkg := range execution.Packages() {
		r.tests.passed += len(execution.Package(pkg).Passed)
		r.tests.skipped += len(execution.Package(pkg).Skipped)
	}
}

// collect groups what failed by root tests.
func collect(s suite, st step, execution *testjson.Execution) []*failure {
	var all []*failure
	for _, name := range execution.Packages() {
		pkg := execution.Package(name)
		byRoot := map[string]*failure{}
		for _, tc := range pkg.Failed {
			root, _ := tc.Test.Split()
			f := byRoot[root]
			if f == nil {
				f = &failure{suite: s, step: st, pkg: name, test: root}
				byRoot[root] = f
				all = append(all, f)
			}
			for _, line := range execution.OutputLines(tc) {
				if !strings.HasPrefix(line, "=== ") { // RUN, PAUSE, CONT
					f.output += line
				}
			}
		}
		if pkg.Result() == testjson.ActionFail && len(pkg.Failed) == 0 {
			f := &failure{suite: s, step: st, pkg: name}
			var text strings.Builder
			_ = pkg.WriteOutputTo(&text, 0)
			f.output = text.String()
			all = append(all, f)
		}
	}
	return all
}

// events shows and logs what go test prints.
type events struct {
	*runner
	activity        *activity
	packages, tests int    // that have ended
	unchanged       string // the package whose result is an earlier run's

	mu   sync.Mutex
	lost strings.Builder // what belongs to no package: compilers' errors
}

func (e *events) Event(event testjson.TestEvent, _ *testjson.Execution) error {
	e.count(event)
	switch {
	case event.Action == testjson.ActionBuild:
		return e.Err(strings.TrimSuffix(event.Output, "\n"))
	case event.Action == testjson.ActionOutput:
		if event.Test == "" && strings.HasSuffix(event.Output, "\t(cached)\n") {
			e.unchanged = event.Package
		}
		_, err := io.WriteString(e.log, event.Output)
		return err
	case event.Test != "" && event.Action == testjson.ActionFail:
		e.show("--- FAIL: %s %s (%.1fs)", short(event.Package), event.Test, event.Elapsed)
	case event.Test == "" && event.Action == testjson.ActionPass && event.Package == e.unchanged:
		e.show("ok   %s (unchanged)", short(event.Package))
	case event.Test == "" && event.Action == testjson.ActionPass:
		e.show("ok   %s %.1fs", short(event.Package), event.Elapsed)
	case event.Test == "" && event.Action == testjson.ActionFail:
		e.show("FAIL %s %.1fs", short(event.Package), event.Elapsed)
	}
	return nil
}

// count says how far the suite has come.
func (e *events) count(event testjson.TestEvent) {
	if event.Action != testjson.ActionPass && event.Action != testjson.ActionFail {
		return
	}
	if event.Test != "" {
		e.tests++
	} else {
		e.packages++
	}
	e.out.count(e.activity, "%d tests and %d packages have ended", e.tests, e.packages)
}

// Err gets what go test prints beside the events.
func (e *events) Err(text string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lost.WriteString(text + "\n")
	_, err := io.WriteString(e.log, text+"\n")
	return err
}

func (e *events) text() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lost.String()
}

// show is for who waits. The log has it already, in go test's words.
func (r *runner) show(format string, args ...any) { fmt.Fprintf(r.out, format+"\n", args...) }

// say is for both.
func (r *runner) say(format string, args ...any) {
	r.show(format, args...)
	fmt.Fprintf(r.log, format+"\n", args...)
}

// short is a package without the name of the product's module.
func short(pkg string) string {
	return strings.TrimPrefix(strings.TrimPrefix(pkg, "github.com/edgehub-io/edgehub"), "/")
}
