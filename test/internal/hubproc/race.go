//go:build race

package hubproc

const raceDetector = true
