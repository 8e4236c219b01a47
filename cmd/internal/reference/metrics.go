package reference

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// metric is what a registry knows of one metric.
type metric struct {
	name, kind, help string
	labels           []string
}

// Metrics returns a table of all metrics registered on r, by name, including those without a
// value. It fails when the type of one is unknown.
func Metrics(r *prometheus.Registry) (string, error) {
	kinds, err := gatheredKinds(r)
	if err != nil {
		return "", err
	}
	byName := map[string]metric{}
	for _, desc := range describe(r) {
		m, err := parseDesc(desc)
		if err != nil {
			return "", err
		}
		m.kind = kinds[m.name]
		if m.kind == "" {
			m.kind = registeredKind(r, desc)
		}
		if m.kind == "" && strings.HasSuffix(m.name, "_total") {
			m.kind = "counter"
		}
		if m.kind == "" {
			return "", fmt.Errorf("the type of metric %s is unknown: it has no value, and is part of a collector of several metrics", m.name)
		}
		byName[m.name] = m // one for each value of a constant label: they differ in nothing shown
	}
	t := newTable("metric", "type", "labels", "meaning")
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		m := byName[name]
		t.row(code(name), m.kind, strings.Join(codes(m.labels), ", "), m.help)
	}
	return t.String(), nil
}

func describe(c prometheus.Collector) []*prometheus.Desc {
	ch := make(chan *prometheus.Desc)
	go func() {
		defer close(ch)
		c.Describe(ch)
	}()
	var all []*prometheus.Desc
	for desc := range ch {
		all = append(all, desc)
	}
	return all
}

// gatheredKinds are the types of the metrics that have a value.
func gatheredKinds(r *prometheus.Registry) (map[string]string, error) {
	families, err := r.Gather()
	if err != nil {
		return nil, fmt.Errorf("gather metrics: %w", err)
	}
	kinds := map[string]string{}
	for _, f := range families {
		kinds[f.GetName()] = strings.ToLower(f.GetType().String())
	}
	return kinds, nil
}

// registeredKind is the type of a metric that has no value, such as a vector without
// elements, or "". A collector with the same description cannot be registered, and the
// error names the one that is there.
func registeredKind(r *prometheus.Registry, desc *prometheus.Desc) string {
	err := r.Register(described{desc})
	if err == nil {
		r.Unregister(described{desc})
		return ""
	}
	there, ok := errors.AsType[prometheus.AlreadyRegisteredError](err)
	if !ok {
		return ""
	}
	switch there.ExistingCollector.(type) {
	case *prometheus.CounterVec:
		return "counter"
	case *prometheus.GaugeVec:
		return "gauge"
	case *prometheus.HistogramVec:
		return "histogram"
	}
	return ""
}

// described is a collector with a description and no metric.
type described struct{ desc *prometheus.Desc }

func (d described) Describe(ch chan<- *prometheus.Desc) { ch <- d.desc }
func (d described) Collect(chan<- prometheus.Metric)    {}

var (
	descText   = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: ("(?:[^"\\]|\\.)*"), .*constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)
	constLabel = regexp.MustCompile(`(\w+)="`)
)

// parseDesc parses the text of a description, which has no other interface to read it.
func parseDesc(desc *prometheus.Desc) (metric, error) {
	found := descText.FindStringSubmatch(desc.String())
	if found == nil {
		return metric{}, fmt.Errorf("the client library describes a metric in an unknown form: %s", desc)
	}
	help, err := strconv.Unquote(found[2])
	if err != nil {
		return metric{}, fmt.Errorf("read the help of %s: %w", found[1], err)
	}
	m := metric{name: found[1], help: help}
	for _, label := range constLabel.FindAllStringSubmatch(found[3], -1) {
		m.labels = append(m.labels, label[1])
	}
	if found[4] != "" {
		m.labels = append(m.labels, strings.Split(found[4], ",")...)
	}
	return m, nil
}

func codes(all []string) []string {
	var out []string
	for _, s := range all {
		out = append(out, code(s))
	}
	return out
}
