//go:build !linux

package daemon

import (
	"context"
	"errors"
)

func listener(context.Context, string) (int32, error) {
	return 0, errors.New("the process behind a socket can be found on Linux only")
}
