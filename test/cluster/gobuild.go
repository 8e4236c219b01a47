package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/edgehub-io/edgehub/test/cluster/tempdir"
)

const buildReportPeriod = 10 * time.Second

// recipe is a release of somebody else's that is built here, once per machine, in a
// folder of this repository that has a go.mod of its own.
type recipe struct {
	title    string // "Kubernetes"
	name     string // how the result's name begins
	folder   string // has go.mod and go.sum, and perhaps main.go
	module   string // whose version is that of the result
	took     string // "5 minutes on two cores"
	flags    func(version string) []string
	programs []string // packages; the result is a folder with them. None: it is the program in folder
}

// goBuild is one way to follow a recipe; its key names everything that the result
// depends on.
type goBuild struct {
	recipe
	source  string // folder with go.mod and go.sum
	version string // v1.37.2
	key     string
}

// build returns the result from the cache, or makes it. Two programs that want it
// at once build it once: the second waits for the first.
func (r recipe) build(ctx context.Context, log *progress) (string, error) {
	result, err := r.cached(ctx, log)
	if err != nil {
		return "", fmt.Errorf("build %s: %w", r.title, err)
	}
	return result, nil
}

func (r recipe) cached(ctx context.Context, log *progress) (string, error) {
	build, err := r.prepare(ctx)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache folder: %w", err)
	}
	folder := filepath.Join(cache, "edgehub")
	result := filepath.Join(folder, r.name+"-"+build.version+"-"+build.key)
	if exists(result) {
		return result, nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	unlock, err := lockFile(ctx, filepath.Join(folder, "build.lock"), func() {
		log.step("another program builds into %s; waiting for it", folder)
	})
	if err != nil {
		return "", err
	}
	defer unlock()
	if exists(result) {
		return result, nil
	}
	return result, build.run(ctx, result, log)
}

func (r recipe) prepare(ctx context.Context) (*goBuild, error) {
	root, err := sourceFolder()
	if err != nil {
		return nil, err
	}
	b := &goBuild{recipe: r, source: filepath.Join(root, r.folder)}
	if b.version, err = b.goOutput(ctx, "list", "-m", "-f", "{{.Version}}", r.module); err != nil {
		return nil, err
	}
	compiler, err := b.goOutput(ctx, "env", "GOVERSION", "GOOS", "GOARCH")
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	fmt.Fprintln(sum, compiler, r.flags(b.version))
	for _, file := range []string{"main.go", "go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(b.source, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(sum, "%s %x\n", file, sha256.Sum256(content))
	}
	b.key = fmt.Sprintf("%x", sum.Sum(nil))[:12]
	return b, nil
}

// run builds beside the target and renames: the rename is the commit point, a build
// that was interrupted leaves nothing that looks whole.
func (b *goBuild) run(ctx context.Context, result string, log *progress) error {
	log.step("building %s %s; once per machine, %s; it is kept as %s", b.title, b.version, b.took, result)
	partial := result + partialSuffix
	defer os.RemoveAll(partial)
	output, packages := partial, []string{"."}
	if len(b.programs) > 0 {
		output, packages = partial+"/", b.programs // the slash makes it a folder
	}
	if err := b.compile(ctx, output, packages, log); err != nil {
		return err
	}
	if err := os.Rename(partial, result); err != nil {
		return err
	}
	log.step("%s %s is built", b.title, b.version)
	return nil
}

// partialSuffix ends the name of a result that is not finished.
const partialSuffix = ".partial"

// RemoveUnfinishedBuilds removes what a program has left that was killed while it built,
// and calls found with each before. While another program builds, it does nothing.
func RemoveUnfinishedBuilds(found func(kind, name string)) error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("find the cache folder: %w", err)
	}
	left, err := filepath.Glob(filepath.Join(cache, "edgehub", "*"+partialSuffix))
	if err != nil || len(left) == 0 {
		return err
	}
	lock, err := tempdir.Lock(filepath.Join(cache, "edgehub", "build.lock"))
	if errors.Is(err, tempdir.ErrLocked) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	var errs []error
	for _, partial := range left {
		found("unfinished build", partial)
		errs = append(errs, os.RemoveAll(partial))
	}
	return errors.Join(errs...)
}

func (b *goBuild) compile(ctx context.Context, target string, packages []string, log *progress) error {
	// Whoever has a use for the processors meanwhile goes first: then what both compile is compiled
	// once, since this one comes later and finds it in Go's cache. -v prints one line for each package
	// that is compiled.
	args := append([]string{"-n", "19", "go", "build", "-v", "-o", target}, b.flags(b.version)...)
	cmd := b.command(ctx, "nice", append(args, packages...)...)
	output := &buildOutput{}
	cmd.Stdout, cmd.Stderr = output, output
	stop := reportEvery(buildReportPeriod, func(elapsed time.Duration) {
		log.step("building %s: %d packages compiled, %s so far", b.title, output.packages.Load(), elapsed.Round(time.Second))
	})
	err := cmd.Run()
	stop()
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted (what is compiled is kept, the next try goes on from there): %w", context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("go build in %s: %w\n%s", b.source, err, output.tail())
	}
	return nil
}

func (b *goBuild) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = b.source
	cmd.Env = goEnvironment()
	// An interrupt ends the go command orderly, with its compilers.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = stopGrace
	return cmd
}

// goEnvironment is that of every go command here. A workspace of the user's, or flags for
// another module, must not leak in. A go that is too old has the one of go.mod fetched, also
// where it was installed not to unless GOTOOLCHAIN is set.
func goEnvironment() []string {
	env := append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-buildvcs=false")
	if os.Getenv("GOTOOLCHAIN") == "" {
		env = append(env, "GOTOOLCHAIN=auto")
	}
	return env
}

func (b *goBuild) goOutput(ctx context.Context, args ...string) (string, error) {
	return goOutput(b.command(ctx, "go", args...))
}

// buildOutput counts the lines of a build and keeps the last of them. Only the
// goroutine that exec.Cmd copies with writes to it.
type buildOutput struct {
	packages atomic.Int64
	last     []byte
}

func (o *buildOutput) Write(p []byte) (int, error) {
	o.packages.Add(int64(bytes.Count(p, []byte("\n"))))
	o.last = append(o.last, p...)
	if len(o.last) > logTailBytes {
		o.last = bytes.Clone(o.last[len(o.last)-logTailBytes:])
	}
	return len(p), nil
}

func (o *buildOutput) tail() []byte { return o.last }

// reportEvery calls report once per period until the returned function is called.
func reportEvery(period time.Duration, report func(elapsed time.Duration)) (stop func()) {
	start, done, ended := time.Now(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(period)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				report(time.Since(start))
			case <-done:
				return
			}
		}
	}()
	return func() { close(done); <-ended }
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

func isExecutable(file string) bool {
	info, err := os.Stat(file)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// lockFile takes the lock on a file, calls waiting once if another program has
// it, and returns what releases it. The lock ends with the program that has it.
func lockFile(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	told := false
	err = poll(ctx, func(context.Context) error {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err != nil && !told {
			told = true
			waiting()
		}
		return err
	})
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { _ = file.Close() }, nil
}
