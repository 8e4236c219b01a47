//go:build !race

package hubproc

const raceDetector = false
