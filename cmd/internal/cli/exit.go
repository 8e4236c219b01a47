package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

// Exit codes, which scripts branch on. Done and Failed are those of all programs, the others edgehubctl's, whose help explains
// them.
const (
	Done   = 0 // what was asked for is done
	Failed = 1 // it is not done, and another attempt alone does not help
	Usage  = 2 // the words on the command line are wrong
	Undone = 3 // it goes on, but nobody waits any longer
	NotNow = 4 // it was refused for now; a later attempt may succeed
	Broken = 5 // it was carried out, and what is new does not run
)

// Error is an error with the exit code of the program that it ends. Without Err, nothing is printed.
type Error struct {
	Code int
	Err  error
}

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an error with an exit code.
func Errorf(code int, format string, args ...any) error {
	return &Error{code, fmt.Errorf(format, args...)}
}

// Exit returns an error that ends the program with code, without words; nil for Done.
func Exit(code int) error {
	if code == Done {
		return nil
	}
	return &Error{Code: code}
}

// usageError is about the command line: a Program adds which help to read.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

// WrongUse returns an error with the code Usage.
func WrongUse(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// CodeOf returns the exit code of err, Failed if it has none. Help that was asked for is no failure.
func CodeOf(err error) int {
	if err == nil || errors.Is(err, pflag.ErrHelp) {
		return Done
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		return Usage
	}
	return Failed
}

// Finish prints why a program fails, behind prefix, and returns its exit code.
func Finish(w io.Writer, prefix string, err error) int {
	code := CodeOf(err)
	if e, ok := errors.AsType[*Error](err); code != Done && (!ok || e.Err != nil) {
		fmt.Fprintln(w, prefix+":", err)
	}
	return code
}

// UntilEnded returns a context that ends when the user or the system ends the program: by SIGINT, SIGTERM, or the end of its terminal,
// which nohup has it ignore.
func UntilEnded() (context.Context, context.CancelFunc) {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		ends = append(ends, syscall.SIGHUP)
	}
	return signal.NotifyContext(context.Background(), ends...)
}

// Main runs a program that works until it is stopped by SIGINT or SIGTERM, and returns its exit code.
func Main(name string, run func(ctx context.Context, args []string) error) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return Finish(os.Stderr, name, run(ctx, os.Args[1:]))
}

// Pause waits for d, or until ctx is done.
func Pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
