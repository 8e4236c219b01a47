package rollout

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/ota/api"
)

// DefaultMaxUnavailable holds without api.MaxUnavailableAnnotation, and when that is
// "0" or "0%": a rollout that may not make anything unavailable could never begin.
var DefaultMaxUnavailable = Amount{Value: 10, Percent: true}

// Bounds of Options.PrepullTimeout. There is no 0, which one person would take for
// not waiting and another for waiting as long as it takes.
const (
	DefaultPrepullTimeout = 30 * time.Minute
	minPrepullTimeout     = time.Second
	maxPrepullTimeout     = 720 * time.Hour
)

// Options are the annotations of a DaemonSet, parsed. The zero value is that of
// a DaemonSet without any, except for MaxUnavailable, PrepullTimeout and Policy.
type Options struct {
	// MaxUnavailable is how many of the Ready nodes that should run the daemon may
	// be without an available pod before the next pod is deleted. It is not 0.
	MaxUnavailable Amount
	// Partition is how many pods stay at an old revision: a number, or a
	// percentage of the nodes that should run the daemon, Ready or not.
	Partition Amount
	// Paused stops the rollout.
	Paused bool
	// NodeSelector limits the rollout to nodes with these labels; nil is all. The
	// others still count against MaxUnavailable.
	NodeSelector labels.Selector
	// Continue is the revision for which the circuit breaker does not count.
	Continue string
	// Prepull has nodes pull the images of the target first. A Ready
	// pod is deleted once they are there, or when PrepullTimeout has passed
	// since its node was asked and Ready. It is not 0.
	Prepull        bool
	PrepullTimeout time.Duration
	// Policy is what node owners may do with the pods.
	Policy api.Policy
}

// Amount is a number, or a percentage of something.
type Amount struct {
	Value   int
	Percent bool
}

// Of returns how many of n the amount is. A fraction is rounded up.
func (a Amount) Of(n int) int {
	if !a.Percent {
		return a.Value
	}
	return (a.Value*n + 99) / 100
}

func (a Amount) String() string {
	if a.Percent {
		return strconv.Itoa(a.Value) + "%"
	}
	return strconv.Itoa(a.Value)
}

// ParseOptions reads the annotations of a DaemonSet. White space around a value
// does not matter. The error is one line that names each annotation with a wrong
// value, the value, and what to write instead.
func ParseOptions(annotations map[string]string) (Options, error) {
	policy, policyErr := api.ParsePolicy(annotations, false)
	o := Options{MaxUnavailable: DefaultMaxUnavailable, PrepullTimeout: DefaultPrepullTimeout, Policy: policy}
	err := problems(
		parse(annotations, api.MaxUnavailableAnnotation, &o.MaxUnavailable, parseMaxUnavailable),
		parse(annotations, api.PartitionAnnotation, &o.Partition, parseAmount),
		parse(annotations, api.PausedAnnotation, &o.Paused, parseBool),
		parse(annotations, api.NodeSelectorAnnotation, &o.NodeSelector, parseNodeSelector),
		parse(annotations, api.ContinueAnnotation, &o.Continue, parseContinue),
		parse(annotations, api.PrepullAnnotation, &o.Prepull, parseBool),
		parse(annotations, api.PrepullTimeoutAnnotation, &o.PrepullTimeout, parsePrepullTimeout),
		policyErr,
	)
	if err != nil {
		return Options{}, err
	}
	return o, nil
}

// ParseOTA is ParseOptions for the strategy OTA. Only Prepull, Policy and Continue count with it.
func ParseOTA(annotations map[string]string) (Options, error) {
	policy, policyErr := api.ParsePolicy(annotations, true)
	o := Options{Policy: policy}
	err := problems(parse(annotations, api.PrepullAnnotation, &o.Prepull, parseBool),
		parse(annotations, api.ContinueAnnotation, &o.Continue, parseContinue), policyErr)
	if err != nil {
		return Options{}, err
	}
	return o, nil
}

// problems joins the errors in one line, and returns nil if all are nil.
func problems(errs ...error) error {
	var out []string
	for _, err := range errs {
		if err != nil {
			out = append(out, err.Error())
		}
	}
	if out == nil {
		return nil
	}
	return errors.New(strings.Join(out, "; "))
}

// parse sets option from the annotation key, if there is one.
func parse[T any](annotations map[string]string, key string, option *T, parseValue func(string) (T, error)) error {
	value, ok := annotations[key]
	if !ok {
		return nil
	}
	parsed, err := parseValue(strings.TrimSpace(value))
	if err != nil {
		return fmt.Errorf("annotation %s is %q: %w", key, quotable(value), err)
	}
	*option = parsed
	return nil
}

// amountPattern is all that is accepted as an Amount. Nine digits are more nodes
// than any cluster has, and fit an int.
var amountPattern = regexp.MustCompile(`^(?:([0-9]{1,9})|([0-9]{1,2}|100)%)$`)

func parseAmount(s string) (Amount, error) {
	m := amountPattern.FindStringSubmatch(s)
	if m == nil {
		return Amount{}, errors.New("write a number such as 3, or a percentage such as 10%, from 0% to 100%")
	}
	value, _ := strconv.Atoi(m[1] + m[2]) // the pattern accepts only what fits
	return Amount{Value: value, Percent: m[2] != ""}, nil
}

func parseMaxUnavailable(s string) (Amount, error) {
	a, err := parseAmount(s)
	if a.Value == 0 {
		a = DefaultMaxUnavailable
	}
	return a, err
}

func parseBool(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	default:
		return false, errors.New("write true or false, or remove it")
	}
}

// durationPattern is what is accepted as a duration: as much of Go's syntax as people
// write, and so little that it cannot overflow.
var durationPattern = regexp.MustCompile(`^([0-9]{1,5}([.][0-9]{1,3})?[hms]){1,3}$`)

func parsePrepullTimeout(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || !durationPattern.MatchString(s) || d < minPrepullTimeout || d > maxPrepullTimeout {
		return 0, errors.New("write a duration such as 30m or 12h, from 1s to 720h")
	}
	return d, nil
}

// parseNodeSelector refuses an empty selector, which would match every node: a canary
// would become the whole fleet by mistake.
func parseNodeSelector(s string) (labels.Selector, error) {
	if s == "" {
		return nil, errors.New("write labels of nodes such as zone=test,disk!=hdd, or remove it to update all nodes")
	}
	selector, err := labels.Parse(s)
	if err != nil {
		return nil, fmt.Errorf("write labels of nodes such as zone=test,disk!=hdd: %s", quotable(err.Error()))
	}
	return selector, nil
}

// parseContinue refuses what people write when they do not know that a revision
// is expected. No hash is one of these: Kubernetes leaves vowels out of hashes.
func parseContinue(s string) (string, error) {
	switch strings.ToLower(s) {
	case "", "true", "false", "yes", "no":
		return "", fmt.Errorf("write the revision to go on with, which condition %s names, or remove it", api.HaltedCondition)
	}
	if problems := validation.IsValidLabelValue(s); problems != nil {
		return "", fmt.Errorf("write the revision to go on with, which condition %s names: this is none", api.HaltedCondition)
	}
	return s, nil
}

// maxQuoted is how many bytes of a value are repeated, so that five wrong
// values at once fit an Event, whose message may have 1024.
const maxQuoted = 60

func quotable(s string) string { return daemonset.Truncate(s, maxQuoted) }
