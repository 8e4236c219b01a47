package access

import (
	"maps"
	"sync"
	"time"
)

const (
	// sayEvery is the time between two lines of the log about one subject.
	sayEvery = time.Minute
	// maxSubjects bounds what is remembered of subjects, which callers make up.
	maxSubjects = 1000
)

// sayings keeps lines of the log that others cause from filling the disk. Safe for
// concurrent use.
type sayings struct {
	mu   sync.Mutex
	last map[string]time.Time
}

func newSayings() *sayings { return &sayings{last: map[string]time.Time{}} }

// now tells whether to say something about the subject, and takes it for said.
func (s *sayings) now(subject string, at time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, ok := s.last[subject]; ok && at.Sub(last) < sayEvery {
		return false
	}
	if len(s.last) >= maxSubjects {
		maps.DeleteFunc(s.last, func(_ string, last time.Time) bool { return at.Sub(last) >= sayEvery })
	}
	if len(s.last) >= maxSubjects {
		return false // more than that nobody reads in a minute
	}
	s.last[subject] = at
	return true
}
