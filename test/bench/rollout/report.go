package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// What a rollout of ours may cost.
const (
	timeLimit     = 1.2   // of the DaemonSet controller's RollingUpdate
	requestsLimit = 3.0   // to the apiserver, per upgraded pod
	memoryLimit   = 150e6 // bytes, resident, at any time
)

// result is what was measured at one size, once a round.
type result struct {
	nodes, otherPods int
	ours, native     []*rolledOut
}

func (r *result) pods() int { return daemonSets * r.nodes }

// ratio is the median of the rounds' ratios of our time to the other.
func (r *result) ratio() float64 {
	var out []float64
	for i := range r.ours {
		out = append(out, float64(r.ours[i].took)/float64(r.native[i].took))
	}
	return median(out)
}

func (r *result) requestsPerPod() float64 {
	return float64(of(r.ours, func(o *rolledOut) int { return o.requests.total() })) / float64(r.pods())
}

// peak is the highest of the rounds.
func (r *result) peak() int64 {
	var out int64
	for _, o := range r.ours {
		out = max(out, o.peak)
	}
	return out
}

// failures returns what is over its limit.
func (r *result) failures() error {
	var errs []error
	if ratio := r.ratio(); ratio > timeLimit {
		errs = append(errs, fmt.Errorf("%d nodes: the time is %.2f of RollingUpdate's, over %.1f", r.nodes, ratio, timeLimit))
	}
	if n := r.requestsPerPod(); n > requestsLimit {
		errs = append(errs, fmt.Errorf("%d nodes: %.2f requests per upgraded pod, over %.0f", r.nodes, n, requestsLimit))
	}
	if peak := r.peak(); peak > memoryLimit {
		errs = append(errs, fmt.Errorf("%d nodes: %.0f MB resident, over %.0f", r.nodes, float64(peak)/1e6, memoryLimit/1e6))
	}
	return errors.Join(errs...)
}

// report prints the table, and returns what is over its limit.
func report(out io.Writer, all []*result) error {
	const row = "%6v %10v %7v  %9v %13v %6v  %13v %13v %13v %13v\n"
	fmt.Fprintf(out, "\nFrom the change of %d DaemonSets' templates until all pods are upgraded, at most %s of them unavailable;\n", daemonSets, maxUnavailable)
	fmt.Fprintf(out, "limits: time %.1f of RollingUpdate's, %.0f requests a pod, %.0f MB at any time.\n\n", timeLimit, requestsLimit, memoryLimit/1e6)
	fmt.Fprintf(out, row, "", "other", "", "", "", "", "edgehub-controller's", "", "", "manager's CPU")
	fmt.Fprintf(out, row, "nodes", "pods", "pods", "edgehub", "RollingUpdate", "ratio", "requests/pod", "MB idle, peak", "CPU, of a core", "ours, native")
	var errs []error
	for _, r := range all {
		ours, native := middle(r.ours), middle(r.native)
		cpu := of(r.ours, func(o *rolledOut) time.Duration { return o.cpu })
		fmt.Fprintf(out, row, r.nodes, r.otherPods, r.pods(), round(ours), round(native), fmt.Sprintf("%.2f", r.ratio()),
			fmt.Sprintf("%.2f", r.requestsPerPod()),
			fmt.Sprintf("%.0f, %.0f", float64(of(r.ours, func(o *rolledOut) int64 { return o.idle }))/1e6, float64(r.peak())/1e6),
			fmt.Sprintf("%v, %.0f%%", round(cpu), 100*cpu.Seconds()/ours.Seconds()),
			fmt.Sprintf("%v, %v", round(of(r.ours, managerCPU)), round(of(r.native, managerCPU))))
		errs = append(errs, r.failures())
	}
	fmt.Fprintln(out)
	for _, r := range all {
		r.printRequests(out)
	}
	return errors.Join(errs...)
}

// printRequests lists those of the first round.
func (r *result) printRequests(out io.Writer) {
	fmt.Fprintf(out, "%6d nodes, requests of edgehub-controller:", r.nodes)
	all := r.ours[0].requests
	var kinds []string
	for kind := range all {
		kinds = append(kinds, kind)
	}
	slices.SortFunc(kinds, func(a, b string) int { return cmp.Or(cmp.Compare(all[b], all[a]), cmp.Compare(a, b)) })
	for i, kind := range kinds {
		if i > 0 {
			fmt.Fprint(out, ",")
		}
		fmt.Fprintf(out, " %s %d", kind, all[kind])
	}
	fmt.Fprintln(out)
}

func managerCPU(o *rolledOut) time.Duration { return o.managerCPU }

// middle is the median time.
func middle(all []*rolledOut) time.Duration {
	return of(all, func(o *rolledOut) time.Duration { return o.took })
}

// of is the median of something over the rounds.
func of[T cmp.Ordered](all []*rolledOut, what func(*rolledOut) T) T {
	var out []T
	for _, o := range all {
		out = append(out, what(o))
	}
	return median(out)
}

func median[T cmp.Ordered](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }
