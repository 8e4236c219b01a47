package hubproc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// BuildWith is BuildForMeasuring of a hub in whose source some text is another: an interval of minutes, say. file is
// seen from root.
func BuildWith(ctx context.Context, root, dir, file string, texts map[string]string) (string, error) {
	source, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return "", err
	}
	changed := string(source)
	for was, is := range texts {
		if strings.Count(changed, was) != 1 {
			return "", fmt.Errorf("%s has %q %d times, not once", file, was, strings.Count(changed, was))
		}
		changed = strings.Replace(changed, was, is, 1)
	}
	if root, err = filepath.Abs(root); err != nil {
		return "", err
	}
	replacement, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	replaced, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(root, file): replacement}})
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.WriteFile(replacement, []byte(changed), 0o600), os.WriteFile(overlay, replaced, 0o600)); err != nil {
		return "", err
	}
	return compile(ctx, root, dir, "edgehub", "-overlay="+overlay)
}

func build(ctx context.Context, root, dir string, race bool) (string, error) {
	if built := os.Getenv(ProgramsVariable); built != "" && !race {
		return filepath.Join(built, "edgehub"), nil
	}
	if race {
		return compile(ctx, root, dir, "edgehub", "-race")
	}
	return compile(ctx, root, dir, "edgehub")
}

// BuildOwnersTool is Build for edgehubctl, without the race detector.
func BuildOwnersTool(ctx context.Context, root, dir string) (string, error) {
	if built := os.Getenv(ProgramsVariable); built != "" {
		return filepath.Join(built, "edgehubctl"), nil
	}
	return compile(ctx, root, dir, "edgehubctl")
}

func compile(ctx context.Context, root, dir, program string, flags ...string) (string, error) {
	binary, err := filepath.Abs(filepath.Join(dir, program))
	if err != nil {
		return "", err
	}
	args := append([]string{"build", "-trimpath", "-buildvcs=false", "-tags", "grpcnotrace", "-o", binary}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/"+program)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", program, err, out)
	}
	return binary, nil
}
