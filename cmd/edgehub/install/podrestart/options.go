package podrestart

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// all in place of namespaces selects every pod.
const all = "all"

// Options select pods. The zero value selects none.
type Options struct {
	Namespaces []string      `json:"namespaces,omitempty"`
	Selector   string        `json:"selector,omitempty"`
	Timeout    time.Duration `json:"timeout,omitempty"` // of one pod; 0: DefaultTimeout
}

// DefaultTimeout allows for a pod that takes its time to end, and whose image is pulled.
const DefaultTimeout = 5 * time.Minute

// AddFlags binds o to fs. why describes which pods there are to restart.
func (o *Options) AddFlags(fs *pflag.FlagSet, why string) {
	fs.StringSliceVar(&o.Namespaces, "restart-pods", nil, "restart pods of these namespaces (a comma list, or all) that "+why+", one at a time; pods that nothing would replace are left alone")
	fs.StringVar(&o.Selector, "restart-pods-selector", "", "restart pods with these labels (LABEL=VALUE, as for kubectl -l); with --restart-pods, pods of these namespaces only")
	fs.DurationVar(&o.Timeout, "restart-pods-timeout", DefaultTimeout, "how long one pod may take to end, and its replacement to be Ready")
}

// Given reports whether any pod may be selected.
func (o *Options) Given() bool { return len(o.Namespaces) > 0 || o.Selector != "" }

// Validate returns an error that names the flag that has to change.
func (o *Options) Validate() error {
	var errs []error
	for _, n := range o.Namespaces {
		if reasons := validation.IsDNS1123Label(n); len(reasons) > 0 {
			errs = append(errs, fmt.Errorf("--restart-pods: %q is no namespace: %s", n, strings.Join(reasons, "; ")))
		}
	}
	if _, err := labels.Parse(o.Selector); err != nil {
		errs = append(errs, fmt.Errorf("--restart-pods-selector: %w", err))
	}
	if o.Timeout < 0 {
		errs = append(errs, fmt.Errorf("--restart-pods-timeout: %v is no time to wait", o.Timeout))
	}
	return errors.Join(errs...)
}

// selects reports whether o selects a pod. o must be valid.
func (o *Options) selects(pod *corev1.Pod) bool {
	if !o.Given() {
		return false
	}
	selector, err := labels.Parse(o.Selector)
	if err != nil || !selector.Matches(labels.Set(pod.Labels)) {
		return false
	}
	return len(o.Namespaces) == 0 || slices.Contains(o.Namespaces, all) || slices.Contains(o.Namespaces, pod.Namespace)
}
