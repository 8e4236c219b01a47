//go:build !linux

package engine

import (
	"context"
	"errors"
)

func (e *Engine) visible(_ context.Context, folder string) string { return folder }

func roomAt(string) (room, error) { return room{}, errors.ErrUnsupported }
