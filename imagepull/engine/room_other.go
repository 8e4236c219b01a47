//go:build !linux

package engine

import "errors"

func (e *Engine) roomAt(string) (room, error) { return room{}, errors.ErrUnsupported }
