package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/edgehub-io/edgehub/controller/autonomy"
)

// defaultTolerationSeconds is what an apiserver gives pods unless it is configured otherwise.
const defaultTolerationSeconds = 300

// autonomyConfig is for which nodes pods stay while they are away, and for how long, beside what annotations ask for.
type autonomyConfig struct {
	enabled        bool
	selector       string
	duration       time.Duration
	defaultSeconds int64
}

func (c *autonomyConfig) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&c.enabled, "autonomy", true, "have pods stay on Nodes that are away, where the Node's annotation node.openyurt.io/autonomy-duration or --autonomy-selector asks for it")
	fs.StringVar(&c.selector, "autonomy-selector", "", "labels of Nodes whose pods stay for --autonomy-duration, such as node-role.kubernetes.io/edge=; an annotation of a Node counts before that. Empty: annotations alone decide")
	fs.DurationVar(&c.duration, "autonomy-duration", 0, "for how long pods stay on the Nodes that --autonomy-selector selects; 0 is any outage")
	fs.Int64Var(&c.defaultSeconds, "default-toleration-seconds", defaultTolerationSeconds, "tolerationSeconds that pods have by default, as the apiserver's --default-not-ready-toleration-seconds and --default-unreachable-toleration-seconds: pods with others bring their own, and are left alone. With the rights of deploy/admission the controller asks the apiserver, whose answer counts before this")
}

// fleet returns nil without autonomy.
func (c *autonomyConfig) fleet() (*autonomy.Fleet, error) {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	f := &autonomy.Fleet{Defaults: autonomy.Same(c.defaultSeconds)}
	if c.defaultSeconds < 1 {
		wrong("--default-toleration-seconds=%d: want 1 or more", c.defaultSeconds)
	}
	if c.duration < 0 {
		wrong("--autonomy-duration=%v: want 0 or more", c.duration)
	}
	if c.duration > 0 && c.selector == "" {
		wrong("--autonomy-duration=%v is for the nodes of --autonomy-selector, which is empty", c.duration)
	}
	if c.selector != "" {
		selector, err := labels.Parse(c.selector)
		if err != nil {
			wrong("--autonomy-selector=%q: %w", c.selector, err)
		}
		f.Selector, f.Selected = selector, autonomy.For(c.duration)
	}
	if !c.enabled {
		f = nil
	}
	return f, errors.Join(errs...)
}
