package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// maxFlaky is how many tests may fail at first in a run that passes. A flaky test is a defect
// to mend; many at once are more likely one of the change.
const maxFlaky = 3

// failure is a root test, a package outside of its tests, or a command that failed.
type failure struct {
	suite  suite
	step   step
	pkg    string // or the command
	test   string // empty: not in a test
	output string // of the first run
	flaky  bool   // it passed when it was repeated
	final  string // why it was not repeated, or what it printed the second time
}

func (f *failure) name() string { return strings.TrimSpace(short(f.pkg) + " " + f.test) }

// unmet is how internal/poll fails a test: something did not happen in time. That is no answer,
// so it cannot be a wrong one.
var unmet = regexp.MustCompile(`\bnot within [0-9]`)

// beyondDoubt finds failures that no second run can clear.
var beyondDoubt = regexp.MustCompile(`WARNING: DATA RACE|race detected during execution|(?m:^(panic|fatal error): )|\[recovered\]`)

// conclusive returns why a failure is not repeated, or nothing.
func (f *failure) conclusive() string {
	switch {
	case f.test == "":
		return "it failed outside of a test"
	case beyondDoubt.MatchString(f.output):
		return "a data race or a panic"
	case f.suite.judges(short(f.pkg)) && !unmet.MatchString(f.output):
		return "a wrong answer"
	default:
		return ""
	}
}

// repeat runs each failed test once more, alone, if that can clear it. More than maxFlaky fail
// the run either way, so they are not.
func (r *runner) repeat(ctx context.Context) {
	r.repeating = true
	due := 0
	for _, res := range r.results {
		for _, f := range res.failures {
			if f.final = f.conclusive(); f.final == "" {
				due++
			}
		}
	}
	for i := range r.results {
		res := &r.results[i]
		for _, f := range res.failures {
			switch {
			case f.final != "" || ctx.Err() != nil:
				continue
			case due > maxFlaky:
				f.final = fmt.Sprintf("one of %d, more than the %d that may be flaky", due, maxFlaky)
				continue
			}
			r.say("\n== once more, alone: %s", f.name())
			if f.suite.nodes {
				r.clean(ctx, f.suite, res)
			}
			again := r.goTest(ctx, f.suite, f.step, f.step.alone(f.pkg, f.test))
			f.flaky = len(again) == 0 && ctx.Err() == nil
			if !f.flaky {
				f.final = "it failed again"
			}
		}
	}
}

// alone are the arguments of go test for one test of one package.
func (st step) alone(pkg, test string) []string {
	args := slices.DeleteFunc(slices.Clone(st.args), func(arg string) bool {
		return strings.HasPrefix(arg, "./") || strings.HasPrefix(arg, "-run")
	})
	return append(args, "-run=^"+regexp.QuoteMeta(test)+"$", pkg)
}

// failed returns what fails the run: nothing that is flaky, unless too much is.
func (r *runner) failed() (failed, flaky []*failure) {
	for _, res := range r.results {
		for _, f := range res.failures {
			if f.flaky {
				flaky = append(flaky, f)
			} else {
				failed = append(failed, f)
			}
		}
	}
	return failed, flaky
}

// outputLimit is how much of a failure's output is repeated at the end. The rest is in the log.
const outputLimit = 16 << 10

func (f *failure) excerpt() string {
	text := strings.TrimSpace(f.output)
	if len(text) > outputLimit {
		half := outputLimit / 2
		text = text[:half] + fmt.Sprintf("\n… %d bytes are left out, which the log has …\n", len(text)-outputLimit) + text[len(text)-half:]
	}
	return text
}
