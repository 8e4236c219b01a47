package cli

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
)

func parse(t *testing.T, args ...string) *LogOptions {
	t.Helper()
	var o LogOptions
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o.AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatalf("parse %q: %v", args, err)
	}
	return &o
}

func TestLevels(t *testing.T) {
	tests := map[string]struct {
		args []string
		want slog.Level
	}{
		"info is the default":                   {nil, slog.LevelInfo},
		"a level is taken by name":              {[]string{"--log-level=warn"}, slog.LevelWarn},
		"-v 4 is debug":                         {[]string{"-v", "4"}, slog.LevelDebug},
		"--v=4 is debug":                        {[]string{"--v=4"}, slog.LevelDebug},
		"-v below 4 is not debug":               {[]string{"-v=2"}, slog.LevelInfo - 2},
		"-v above 4 lets through more yet":      {[]string{"-v=8"}, slog.LevelInfo - 8},
		"-v wins over a level that is higher":   {[]string{"--log-level=error", "-v=4"}, slog.LevelDebug},
		"-v 0 does not weaken a level":          {[]string{"--log-level=error", "-v=0"}, slog.LevelError},
		"a level wins over a -v that says less": {[]string{"--log-level=debug", "-v=2"}, slog.LevelDebug},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := parse(t, tt.args...)
			if err := o.Validate(); err != nil {
				t.Fatalf("validate: %v", err)
			}
			if got := o.level(); got != tt.want {
				t.Errorf("got level %v, want %v", got, tt.want)
			}
		})
	}
}

func TestValidateNamesTheFlag(t *testing.T) {
	tests := map[string][]string{
		"--log-level":  {"--log-level=loud"},
		"--log-format": {"--log-format=xml"},
		"--v":          {"-v=-1"},
		"--v=11":       {"-v=11"},
	}
	for want, args := range tests {
		err := parse(t, args...).Validate()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("validate %q: got %v, want an error with %s", args, err, want)
		}
	}
	err := parse(t, "--log-level=loud", "--log-format=xml").Validate()
	if err == nil || !strings.Contains(err.Error(), "--log-level") || !strings.Contains(err.Error(), "--log-format") {
		t.Errorf("got %v, want both wrong flags in one error", err)
	}
}

// Logger sets klog for the whole process: none of these cases run in parallel.
func TestLoggerTakesKlogAlong(t *testing.T) {
	tests := map[string]struct {
		args           []string
		debug, verbose bool // whether such lines come out
	}{
		"by default neither debug nor verbose klog lines": {nil, false, false},
		"-v 2 shows klog lines of that verbosity":         {[]string{"-v=2"}, false, true},
		"debug shows both kinds of lines":                 {[]string{"--log-level=debug"}, true, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var buf bytes.Buffer
			logger := parse(t, tt.args...).Logger(&buf)
			logger.Info("own line")
			logger.Debug("own debug line")
			klog.Info("klog line")
			klog.V(2).Info("verbose klog line")
			out := buf.String()
			for line, want := range map[string]bool{
				`"own line"`: true, `"own debug line"`: tt.debug,
				`"klog line"`: true, `"verbose klog line"`: tt.verbose,
			} {
				if got := strings.Contains(out, line); got != want {
					t.Errorf("line %s: logged %t, want %t; all lines:\n%s", line, got, want, out)
				}
			}
		})
	}
}

func TestFormats(t *testing.T) {
	var buf bytes.Buffer
	parse(t, "--log-format=json").Logger(&buf).Info("hello", "pod", "a/b")
	var line struct{ Msg, Pod string }
	if err := json.Unmarshal(buf.Bytes(), &line); err != nil || line.Msg != "hello" || line.Pod != "a/b" {
		t.Errorf("got %q (%v), want one JSON object", buf.String(), err)
	}
	buf.Reset()
	parse(t).Logger(&buf).Info("hello", "pod", "a/b")
	if !strings.Contains(buf.String(), "msg=hello pod=a/b") {
		t.Errorf("got %q, want key=value text", buf.String())
	}
}
