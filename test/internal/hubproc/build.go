package hubproc

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Build returns the path of a hub, with the race detector if this test has it: the one that the
// suites' runner has built, or one that is built into a folder. root is the folder of the
// product's module.
func Build(ctx context.Context, root, dir string) (string, error) {
	return build(ctx, root, dir, raceDetector)
}

// BuildForMeasuring is Build without the race detector, which takes several times the
// memory and time.
func BuildForMeasuring(ctx context.Context, root, dir string) (string, error) {
	return build(ctx, root, dir, false)
}

func build(ctx context.Context, root, dir string, race bool) (string, error) {
	if built := os.Getenv(ProgramsVariable); built != "" && !race {
		return filepath.Join(built, "edgehub"), nil
	}
	binary, err := filepath.Abs(filepath.Join(dir, "edgehub"))
	if err != nil {
		return "", err
	}
	args := []string{"build", "-trimpath", "-buildvcs=false", "-tags", "grpcnotrace", "-o", binary}
	if race {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/edgehub")...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the hub: %w\n%s", err, out)
	}
	return binary, nil
}
