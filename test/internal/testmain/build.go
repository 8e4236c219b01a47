package testmain

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/edgehub-io/edgehub/test/internal/hubproc"
)

// Build returns the path of a program of the product: as the suites' runner has built it, if that is what runs the test, or else built
// into the stand's folder. root is the folder of the product's module, flags are further ones of `go build`. The hub is built by
// hubproc.Build.
func (s *Env) Build(ctx context.Context, root, program string, flags ...string) (string, error) {
	if built := os.Getenv(hubproc.ProgramsVariable); built != "" && len(flags) == 0 {
		return filepath.Join(built, program), nil
	}
	binary := filepath.Join(s.Dir, program)
	args := append([]string{"build", "-tags=grpcnotrace", "-o", binary}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/"+program)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", program, err, out)
	}
	return binary, nil
}
