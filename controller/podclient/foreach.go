package podclient

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// forEach calls f for each item, for at most limit of them at once, and returns when all
// calls have. When ctx is done it begins no more calls.
func forEach[T any](ctx context.Context, limit int, items []T, f func(T)) {
	var g errgroup.Group
	g.SetLimit(limit)
	for _, item := range items {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			f(item)
			return nil
		})
	}
	_ = g.Wait() // no call returns an error
}
