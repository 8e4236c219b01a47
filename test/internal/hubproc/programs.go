package hubproc

import (
	"fmt"
	"os"
	"path/filepath"
)

// ProgramsVariable names the folder in which the suites' runner has built the product's programs.
const ProgramsVariable = "EDGEHUB_PROGRAMS"

// Programs is the folder with the product's programs: that of ProgramsVariable, or else bin/ of
// the checkout, where make build leaves them. root is the folder of the product's module.
func Programs(root string) (string, error) {
	folder := os.Getenv(ProgramsVariable)
	if folder == "" {
		folder = filepath.Join(root, "bin")
	}
	folder, err := filepath.Abs(folder) // nodes have another working folder
	if err == nil {
		_, err = os.Stat(filepath.Join(folder, "edgehub"))
	}
	if err != nil {
		return "", fmt.Errorf("find the product's programs: %w (make build builds them)", err)
	}
	return folder, nil
}
