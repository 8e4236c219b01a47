package rollout

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// DefaultMaxUnavailable holds without MaxUnavailableAnnotation, and when that is
// "0" or "0%": a rollout that may not make anything unavailable could never begin.
var DefaultMaxUnavailable = Amount{Value: 10, Percent: true}

// Options are what the annotations of a DaemonSet say. The zero value is that of
// a DaemonSet without any, except for MaxUnavailable.
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

// amountPattern is all that is taken for an Amount. Nine digits are more nodes
// than any cluster has, and fit an int.
var amountPattern = regexp.MustCompile(`^(?:([0-9]{1,9})|([0-9]{1,2}|100)%)$`)

// ParseOptions reads the annotations of a DaemonSet. White space around a value
// does not matter. The error is one line that names each annotation with a wrong
// value, the value, and what to write instead.
func ParseOptions(annotations map[string]string) (Options, error) {
	o := Options{MaxUnavailable: DefaultMaxUnavailable}
	var problems []string
	for _, p := range []struct {
		key   string
		parse func(string) error
	}{
		{MaxUnavailableAnnotation, o.parseMaxUnavailable},
		{PartitionAnnotation, o.parsePartition},
		{PausedAnnotation, o.parsePaused},
		{NodeSelectorAnnotation, o.parseNodeSelector},
		{ContinueAnnotation, o.parseContinue},
	} {
		value, ok := annotations[p.key]
		if !ok {
			continue
		}
		if err := p.parse(strings.TrimSpace(value)); err != nil {
			problems = append(problems, fmt.Sprintf("annotation %s is %q: %s", p.key, quotable(value), err))
		}
	}
	if problems != nil {
		return Options{}, errors.New(strings.Join(problems, "; "))
	}
	return o, nil
}

func (o *Options) parseMaxUnavailable(s string) error {
	a, err := parseAmount(s)
	if err == nil && a.Value != 0 {
		o.MaxUnavailable = a
	}
	return err
}

func (o *Options) parsePartition(s string) (err error) {
	o.Partition, err = parseAmount(s)
	return err
}

func (o *Options) parsePaused(s string) error {
	switch strings.ToLower(s) {
	case "true":
		o.Paused = true
	case "false":
	default:
		return errors.New("write true or false, or remove it")
	}
	return nil
}

// parseNodeSelector does not take an empty selector, which would match every
// node: for a canary, that slip would be the whole fleet.
func (o *Options) parseNodeSelector(s string) error {
	if s == "" {
		return errors.New("write labels of nodes such as zone=test,disk!=hdd, or remove it to update all nodes")
	}
	selector, err := labels.Parse(s)
	if err != nil {
		return fmt.Errorf("write labels of nodes such as zone=test,disk!=hdd: %s", quotable(err.Error()))
	}
	o.NodeSelector = selector
	return nil
}

// parseContinue refuses what people write when they do not know that a revision
// is asked for. No hash is such a word: Kubernetes leaves vowels out of them.
func (o *Options) parseContinue(s string) error {
	switch strings.ToLower(s) {
	case "", "true", "false", "yes", "no":
		return fmt.Errorf("write the revision to go on with, which condition %s names, or remove it", HaltedCondition)
	}
	if problems := validation.IsValidLabelValue(s); problems != nil {
		return fmt.Errorf("write the revision to go on with, which condition %s names: this is none", HaltedCondition)
	}
	o.Continue = s
	return nil
}

func parseAmount(s string) (Amount, error) {
	m := amountPattern.FindStringSubmatch(s)
	if m == nil {
		return Amount{}, errors.New("write a number such as 3, or a percentage such as 10%, from 0% to 100%")
	}
	digits := m[1] + m[2]
	value, err := strconv.Atoi(digits)
	if err != nil {
		return Amount{}, fmt.Errorf("write a smaller number than %s", digits)
	}
	return Amount{Value: value, Percent: m[2] != ""}, nil
}

// maxQuoted is how many bytes of somebody's words are repeated, so that five of
// them fit an Event, whose message may have 1024.
const maxQuoted = 60

func quotable(s string) string {
	if len(s) <= maxQuoted {
		return s
	}
	return strings.ToValidUTF8(s[:maxQuoted], "") + "..."
}
