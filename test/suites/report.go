package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// report prints what failed, the table, and the closing lines. It returns the exit code.
func (r *runner) report(ctx context.Context) int {
	failed, flaky := r.failed()
	for _, f := range flaky {
		r.say("\nFLAKY %s (suite %s): it failed, and passed when it was repeated alone. Mend it. Its first output:\n%s", f.name(), f.suite.name, f.excerpt())
	}
	for _, f := range failed {
		r.say("\n--- FAIL: %s (suite %s; %s)\n%s", f.name(), f.suite.name, f.final, f.excerpt())
	}
	r.say("")
	r.table(io.MultiWriter(r.out, r.log))
	r.say("")
	for _, f := range flaky {
		r.say("FLAKY: %s", f.name())
	}
	for _, f := range failed {
		r.say("FAILED: %s; to run its suite again: make test-all ONLY=%s", f.name(), f.suite.name)
	}
	if len(flaky) > maxFlaky {
		r.say("FAILED: %d tests are flaky, more than %d", len(flaky), maxFlaky)
	}
	if ctx.Err() != nil {
		r.say("INTERRUPTED: not everything was run")
	}
	r.say("the whole log: %s", r.log.Name())
	// The word before the colon and the form are what tools that read logs of tests know.
	r.say("edgehub: %d passed, %d failed, %d skipped", r.tests.passed, len(failed), r.tests.skipped)
	if len(failed) > 0 || len(flaky) > maxFlaky || ctx.Err() != nil {
		return exitFailed
	}
	return 0
}

func (r *runner) table(w io.Writer) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SUITE\tRESULT\tSECONDS\tSEED\tCOMMIT\tLOAD AND STEAL")
	for _, res := range r.results {
		seed := "-"
		if res.suite.random {
			seed = strconv.Itoa(r.seed)
		}
		fmt.Fprintf(table, "%s\t%s\t%.0f\t%s\t%s\t%s\n", res.suite.name, res.verdict(), res.took.Seconds(), seed, r.commit, cmp.Or(res.remark, res.machine.String()))
	}
	_ = table.Flush()
}

// verdict is one word or a reason.
func (res result) verdict() string {
	verdict := "ok"
	for _, f := range res.failures {
		if !f.flaky {
			return "FAILED"
		}
		verdict = "ok, FLAKY"
	}
	if res.notRun != "" {
		return "not run: " + res.notRun
	}
	return verdict
}

// list prints what suites there are.
func list(w io.Writer, suites []suite) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SUITE\tGATE\tNEEDS\tWHAT")
	for _, s := range suites {
		gate := ""
		if s.gate {
			gate = "yes"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", s.name, gate, strings.Join(s.needs(), ", "), s.what)
	}
	_ = table.Flush()
}
