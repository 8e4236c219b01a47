package testmain

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

// Build builds a program of the product into the stand's folder, and returns its path.
// root is the folder of the product's module, flags are further ones of `go build`. The
// hub is built by hubproc.Build.
func (s *Env) Build(ctx context.Context, root, program string, flags ...string) (string, error) {
	binary := filepath.Join(s.Dir, program)
	args := append([]string{"build", "-tags=grpcnotrace", "-o", binary}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/"+program)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", program, err, out)
	}
	return binary, nil
}
