package ota

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
)

// refusalsAtOnce is how many lines about refusals of one kind are logged at once. One a minute follows: whoever may call
// could fill the disk.
const refusalsAtOnce = 20

// refusalLog limits the lines about refused requests. The zero value is ready. It is safe for concurrent use.
type refusalLog struct {
	mu sync.Mutex
	of map[refusalKind]*refusalPace // some dozens: what is refused, and the code
}

type refusalKind struct {
	what string
	code int
}

type refusalPace struct {
	*rate.Limiter
	left int // out, since the last line
}

// logFunc is slog.Logger.LogAttrs.
type logFunc func(ctx context.Context, level slog.Level, what string, attrs ...slog.Attr)

// limitedLog logs lines about requests that were refused with this code, but those that are too many of their kind. What the queue
// does by itself is not among them: no line of it is left out because of what somebody asks for.
func (s *server) limitedLog(code int) logFunc {
	return func(ctx context.Context, level slog.Level, what string, attrs ...slog.Attr) {
		left, ok := s.refusals.allow(refusalKind{what, code})
		if !ok {
			return
		}
		if left > 0 {
			attrs = append(attrs, slog.Int("others", left))
		}
		s.Logger.LogAttrs(ctx, level, what, attrs...)
	}
}

// logRefusal logs a line about a request for a pod that was refused, limited as limitedLog is.
func (s *server) logRefusal(ctx context.Context, what string, pod types.NamespacedName, err error) {
	code := codeOf(err)
	s.limitedLog(code)(ctx, slog.LevelWarn, what, slog.String("pod", pod.String()), slog.Int("code", code), slog.String("error", oneLine(err)))
}

// allow reports whether there is a line, and how many there were not since the last.
func (l *refusalLog) allow(kind refusalKind) (left int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.of[kind]
	if p == nil {
		if l.of == nil {
			l.of = map[refusalKind]*refusalPace{}
		}
		p = &refusalPace{Limiter: rate.NewLimiter(rate.Every(time.Minute), refusalsAtOnce)}
		l.of[kind] = p
	}
	if !p.Allow() {
		p.left++
		return 0, false
	}
	left, p.left = p.left, 0
	return left, true
}
