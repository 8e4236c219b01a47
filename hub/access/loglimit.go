package access

import (
	"maps"
	"sync"
	"time"
)

const (
	// logInterval is the minimum time between two log lines about one subject.
	logInterval = time.Minute
	// maxSubjects limits how many subjects are kept: callers can invent them.
	maxSubjects = 1000
)

// logLimit limits log lines that remote callers cause, so that they cannot fill the disk. It
// is safe for concurrent use.
type logLimit struct {
	mu   sync.Mutex
	last map[string]time.Time
}

func newLogLimit() *logLimit { return &logLimit{last: map[string]time.Time{}} }

// allow reports whether a line about the subject may be logged now, and counts it if so.
func (s *logLimit) allow(subject string, at time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, ok := s.last[subject]; ok && at.Sub(last) < logInterval {
		return false
	}
	if len(s.last) >= maxSubjects {
		maps.DeleteFunc(s.last, func(_ string, last time.Time) bool { return at.Sub(last) >= logInterval })
	}
	if len(s.last) >= maxSubjects {
		return false // too many to read anyway
	}
	s.last[subject] = at
	return true
}
