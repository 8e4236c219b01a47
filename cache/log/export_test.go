package log

import (
	"os"
	"time"
)

// Limit makes checkpoints due, and the file grown, after fewer bytes.
func (l *Log) Limit(due, grow int64) { l.dueBytes, l.dueTimes, l.growBytes = due, 0, grow }

// FailSync makes syncs of the file fail with err after some that do not, or none if err is nil.
func (l *Log) FailSync(after int, err error) {
	l.write.Lock()
	defer l.write.Unlock()
	l.sync = func(f *os.File) error {
		if after--; err != nil && after < 0 {
			return err
		}
		return f.Sync()
	}
}

// SlowSync makes each sync of the file take a time.
func (l *Log) SlowSync(takes time.Duration) {
	l.sync = func(f *os.File) error {
		time.Sleep(takes)
		return f.Sync()
	}
}

// Discard erases what was set aside a week ago, as Run does from time to time.
func (l *Log) Discard() error { return l.dir.discard(false) }

// Sweep overwrites files that were replaced, as Run does from time to time.
func (l *Log) Sweep() error { return l.sweep() }
