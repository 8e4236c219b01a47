// Package seeds names the seeds that a randomized test plays.
package seeds

import (
	"fmt"
	"os"
	"strconv"
	"testing"
)

// Each plays a test of its own for each seed: as many as the environment variable
// howMany says, or else so many, from FIRST_SEED on, or 1.
func Each(t *testing.T, howMany string, otherwise int, play func(t *testing.T, seed int)) {
	t.Helper()
	first := number(t, "FIRST_SEED", 1)
	for seed := first; seed < first+number(t, howMany, otherwise); seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { play(t, seed) })
	}
}

// number reads a number from the environment.
func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		return otherwise
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 0 {
		t.Fatalf("%s=%q: want a number", name, value)
	}
	return n
}
