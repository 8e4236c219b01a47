package cli

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"strconv"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
)

// maxVerbosity is the highest -v that anything in client-go looks at: 10 prints
// whole request and response bodies.
const maxVerbosity = 10

// debugVerbosity is the klog verbosity that counts as debug. It is also where
// slog.LevelDebug lies, since a klog line of verbosity n has the slog level -n.
const debugVerbosity = -int(slog.LevelDebug)

// levels are the values of --log-level.
var levels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

// LogOptions are the values of the flags for what to log and how.
type LogOptions struct {
	name   string // of the level
	format string // text or json
	// verbosity is for people used to klog: klog lines up to this verbosity
	// show as well, whatever the level is, and 4 or more is debug.
	verbosity int
}

// AddFlags defines the flags on fs.
func (o *LogOptions) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.name, "log-level", "info", "log lines of this level and above: debug, info, warn or error")
	fs.StringVar(&o.format, "log-format", "text", "form of log lines: text or json")
	fs.IntVarP(&o.verbosity, "v", "v", 0, fmt.Sprintf("log verbosity as in klog, 0 to %d; %d or more is --log-level=debug", maxVerbosity, debugVerbosity))
}

// Validate returns an error that names each flag with a wrong value.
func (o *LogOptions) Validate() error {
	var errs []error
	if _, ok := levels[o.name]; !ok {
		errs = append(errs, fmt.Errorf("--log-level=%q: want debug, info, warn or error", o.name))
	}
	if o.format != "text" && o.format != "json" {
		errs = append(errs, fmt.Errorf("--log-format=%q: want text or json", o.format))
	}
	if o.verbosity < 0 || o.verbosity > maxVerbosity {
		errs = append(errs, fmt.Errorf("--v=%d: want 0 to %d", o.verbosity, maxVerbosity))
	}
	return errors.Join(errs...)
}

// Logger returns a logger that writes to w, and makes klog, through which
// client-go logs, write to it too. klog is one per process and is set without a
// lock: call Logger once, after Validate, and before anything else is started.
func (o *LogOptions) Logger(w io.Writer) *slog.Logger {
	level := o.level()
	options := &slog.HandlerOptions{Level: level}
	var handler slog.Handler = slog.NewTextHandler(w, options)
	if o.format == "json" {
		handler = slog.NewJSONHandler(w, options)
	}
	logger := slog.New(handler)
	bridgeKlog(logger, max(0, -int(level)))
	return logger
}

// level is the lower of what --log-level and -v ask for.
func (o *LogOptions) level() slog.Level {
	level := levels[o.name]
	if o.verbosity > 0 {
		level = min(level, slog.Level(-o.verbosity))
	}
	return level
}

// bridgeKlog sends klog lines up to the given verbosity to logger. klog drops
// those above it before they are formatted, and takes the number by flag only.
func bridgeKlog(logger *slog.Logger, verbosity int) {
	fs := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(fs)
	if err := fs.Set("v", strconv.Itoa(verbosity)); err != nil {
		panic("cli: set klog verbosity: " + err.Error()) // an int is what it takes
	}
	klog.SetSlogLogger(logger)
}
