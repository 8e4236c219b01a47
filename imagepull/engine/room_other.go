//go:build !linux

package engine

import (
	"context"
	"errors"
)

func (e *Engine) roomAt(context.Context, string) (room, error) { return room{}, errors.ErrUnsupported }
