package access

import (
	"maps"
	"sync"
	"time"
)

const (
	// logInterval is the time between two lines of the log about one subject.
	logInterval = time.Minute
	// maxSubjects bounds what is remembered of subjects, which callers make up.
	maxSubjects = 1000
)

// logLimit keeps lines of the log that others cause from filling the disk. Safe for
// concurrent use.
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
		return false // more than that nobody reads in a minute
	}
	s.last[subject] = at
	return true
}
