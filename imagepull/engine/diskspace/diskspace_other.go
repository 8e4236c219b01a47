//go:build !linux

package diskspace

import (
	"context"
	"errors"
)

func Visible(_ context.Context, _, folder string) string { return folder }

func At(string) (Space, error) { return Space{}, errors.ErrUnsupported }
