package ota

import (
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

// line returns what a line about a refused request for a pod has, and whether there is to be one: not if there were too many
// of its kind. The last attribute is then how many were left out, if any were.
func (l *refusalLog) line(what string, pod types.NamespacedName, err error) (attrs []slog.Attr, ok bool) {
	code := codeOf(err)
	left, ok := l.allow(refusalKind{what, code})
	attrs = []slog.Attr{slog.String("pod", pod.String()), slog.Int("code", code), slog.String("error", oneLine(err))}
	if left > 0 {
		attrs = append(attrs, slog.Int("others", left))
	}
	return attrs, ok
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
