package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	kubernetesModule  = "k8s.io/kubernetes"
	buildReportPeriod = 10 * time.Second
)

// kubernetesBuild is one way to build the Kubernetes binary; its key names
// everything that the result depends on.
type kubernetesBuild struct {
	source  string // folder with main.go, go.mod and go.sum
	version string // v1.36.3
	flags   []string
	key     string
}

// buildKubernetes returns the binary from the cache, or builds it. Two programs
// that want it at once build it once: the second waits for the first.
func buildKubernetes(ctx context.Context, log *progress) (string, error) {
	build, err := newKubernetesBuild(ctx)
	if err != nil {
		return "", fmt.Errorf("build Kubernetes: %w", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("build Kubernetes: find the cache folder: %w", err)
	}
	folder := filepath.Join(cache, "edgehub")
	binary := filepath.Join(folder, "kubernetes-"+build.version+"-"+build.key)
	if isExecutable(binary) {
		return binary, nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", fmt.Errorf("build Kubernetes: %w", err)
	}
	unlock, err := lockFile(ctx, filepath.Join(folder, "build.lock"), func() {
		log.step("another program builds Kubernetes into %s; waiting for it", folder)
	})
	if err != nil {
		return "", fmt.Errorf("build Kubernetes: %w", err)
	}
	defer unlock()
	if isExecutable(binary) {
		return binary, nil
	}
	if err := build.run(ctx, binary, log); err != nil {
		return "", fmt.Errorf("build Kubernetes: %w", err)
	}
	return binary, nil
}

func newKubernetesBuild(ctx context.Context) (*kubernetesBuild, error) {
	root, err := sourceFolder()
	if err != nil {
		return nil, err
	}
	b := &kubernetesBuild{source: filepath.Join(root, "kubernetes")}
	if b.version, err = b.goOutput(ctx, "list", "-m", "-f", "{{.Version}}", kubernetesModule); err != nil {
		return nil, err
	}
	compiler, err := b.goOutput(ctx, "env", "GOVERSION", "GOOS", "GOARCH")
	if err != nil {
		return nil, err
	}
	b.flags = []string{"-trimpath", "-ldflags", b.linkerFlags()}

	sum := sha256.New()
	fmt.Fprintln(sum, compiler, b.flags)
	for _, file := range []string{"main.go", "go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(b.source, file))
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(sum, "%s %x\n", file, sha256.Sum256(content))
	}
	b.key = fmt.Sprintf("%x", sum.Sum(nil))[:12]
	return b, nil
}

// linkerFlags give the components the version that a release would report.
// Without it they call themselves v0.0.0, and the apiserver serves no API.
func (b *kubernetesBuild) linkerFlags() string {
	flags := []string{"-s", "-w"}
	numbers := strings.SplitN(strings.TrimPrefix(b.version, "v"), ".", 3)
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags,
			"-X", pkg+".gitVersion="+b.version,
			"-X", pkg+".gitMajor="+numbers[0],
			"-X", pkg+".gitMinor="+numbers[1])
	}
	return strings.Join(flags, " ")
}

// run builds into a file beside the target and renames it: the rename is the
// commit point, a build that was interrupted leaves nothing that looks whole.
func (b *kubernetesBuild) run(ctx context.Context, binary string, log *progress) error {
	log.step("building Kubernetes %s; once per machine, 5 minutes on two cores; it is kept as %s", b.version, binary)
	partial := binary + ".partial"
	defer os.Remove(partial)

	// -v prints one line for each package that is compiled.
	cmd := b.goCommand(ctx, append([]string{"build", "-v", "-o", partial}, append(b.flags, ".")...)...)
	output := &buildOutput{}
	cmd.Stdout, cmd.Stderr = output, output
	stop := reportEvery(buildReportPeriod, func(elapsed time.Duration) {
		log.step("building Kubernetes: %d packages compiled, %s so far", output.packages.Load(), elapsed.Round(time.Second))
	})
	err := cmd.Run()
	stop()
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted (what is compiled is kept, the next try goes on from there): %w", context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("go build in %s: %w\n%s", b.source, err, output.tail())
	}
	if err := os.Rename(partial, binary); err != nil {
		return err
	}
	log.step("Kubernetes %s is built", b.version)
	return nil
}

func (b *kubernetesBuild) goCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.source
	// A workspace of the user's, or flags for another module, must not leak in.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-buildvcs=false")
	// An interrupt ends the go command orderly, with its compilers.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = stopGrace
	return cmd
}

func (b *kubernetesBuild) goOutput(ctx context.Context, args ...string) (string, error) {
	return goOutput(b.goCommand(ctx, args...))
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
