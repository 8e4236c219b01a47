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

	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// DefaultMaxUnavailable holds without MaxUnavailableAnnotation, and when that is
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
// a DaemonSet without any, except for MaxUnavailable and PrepullTimeout.
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

// option is an annotation and what reads its value.
type option struct {
	key   string
	parse func(string) error
}

// ParseOptions reads the annotations of a DaemonSet. White space around a value
// does not matter. The error is one line that names each annotation with a wrong
// value, the value, and what to write instead.
func ParseOptions(annotations map[string]string) (Options, error) {
	o := Options{MaxUnavailable: DefaultMaxUnavailable, PrepullTimeout: DefaultPrepullTimeout}
	err := parse(annotations,
		option{MaxUnavailableAnnotation, o.parseMaxUnavailable},
		option{PartitionAnnotation, o.parsePartition},
		option{PausedAnnotation, o.parsePaused},
		option{NodeSelectorAnnotation, o.parseNodeSelector},
		option{ContinueAnnotation, o.parseContinue},
		option{upgrade.PrepullAnnotation, o.parsePrepull},
		option{PrepullTimeoutAnnotation, o.parsePrepullTimeout},
	)
	if err != nil {
		return Options{}, err
	}
	return o, nil
}

// ParsePrepull reads the only one of these annotations that counts with the
// strategy OTA as well. The error is as that of ParseOptions.
func ParsePrepull(annotations map[string]string) (bool, error) {
	var o Options
	err := parse(annotations, option{upgrade.PrepullAnnotation, o.parsePrepull})
	return o.Prepull, err
}

func parse(annotations map[string]string, options ...option) error {
	var problems []string
	for _, p := range options {
		value, ok := annotations[p.key]
		if !ok {
			continue
		}
		if err := p.parse(strings.TrimSpace(value)); err != nil {
			problems = append(problems, fmt.Sprintf("annotation %s is %q: %s", p.key, quotable(value), err))
		}
	}
	if problems != nil {
		return errors.New(strings.Join(problems, "; "))
	}
	return nil
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

func (o *Options) parsePaused(s string) (err error) {
	o.Paused, err = parseBool(s)
	return err
}

func (o *Options) parsePrepull(s string) (err error) {
	o.Prepull, err = parseBool(s)
	return err
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

// durationPattern is what is taken for a duration: as much of Go's as a person
// writes, and so little that it cannot overflow.
var durationPattern = regexp.MustCompile(`^([0-9]{1,5}([.][0-9]{1,3})?[hms]){1,3}$`)

func (o *Options) parsePrepullTimeout(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || !durationPattern.MatchString(s) || d < minPrepullTimeout || d > maxPrepullTimeout {
		return errors.New("write a duration such as 30m or 12h, from 1s to 720h")
	}
	o.PrepullTimeout = d
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
// is asked for. No hash is one of these: Kubernetes leaves vowels out of them.
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

// maxQuoted is how many bytes of a value are repeated, so that five wrong
// values at once fit an Event, whose message may have 1024.
const maxQuoted = 60

func quotable(s string) string {
	if len(s) <= maxQuoted {
		return s
	}
	return strings.ToValidUTF8(s[:maxQuoted], "") + "..."
}
