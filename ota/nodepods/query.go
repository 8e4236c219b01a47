package nodepods

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/params"
)

// Query is what a caller of GET /pods wants. It does not change after ParseQuery, and is safe for concurrent use.
type Query struct {
	Watch   bool
	Timeout time.Duration // of a watch; 0: none

	labels labels.Selector
	fields fields.Selector
}

// ParseQuery reads the query of a URL. Its errors are one line for people.
func ParseQuery(query string) (Query, error) {
	var q Query
	values, err := params.Parse(query, api.LabelSelectorParam, api.FieldSelectorParam, api.WatchParam, api.TimeoutParam)
	if err == nil {
		q.Watch, err = params.Bool(values, api.WatchParam)
	}
	if err != nil {
		return Query{}, err
	}
	if value := values.Get(api.TimeoutParam); value != "" {
		seconds, err := strconv.ParseUint(value, 10, 31)
		if err != nil {
			return Query{}, fmt.Errorf("%s: %.20q is not a number of seconds", api.TimeoutParam, value)
		}
		q.Timeout = time.Duration(seconds) * time.Second
	}
	if q.labels, err = labels.Parse(values.Get(api.LabelSelectorParam)); err != nil {
		return Query{}, selectorError(api.LabelSelectorParam, err)
	}
	if q.fields, err = parseFields(values.Get(api.FieldSelectorParam)); err != nil {
		return Query{}, selectorError(api.FieldSelectorParam, err)
	}
	return q, nil
}

// selectorError is one short line, whatever the selector has.
func selectorError(name string, err error) error {
	printable := func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}
	return fmt.Errorf("%s: %.500s", name, strings.Map(printable, err.Error()))
}

// fieldsOf returns the fields by which an apiserver selects pods.
func fieldsOf(pod *corev1.Pod) fields.Set {
	return fields.Set{
		"metadata.name":            pod.Name,
		"metadata.namespace":       pod.Namespace,
		"spec.nodeName":            pod.Spec.NodeName,
		"spec.restartPolicy":       string(pod.Spec.RestartPolicy),
		"spec.schedulerName":       pod.Spec.SchedulerName,
		"spec.serviceAccountName":  pod.Spec.ServiceAccountName,
		"spec.hostNetwork":         strconv.FormatBool(pod.Spec.HostNetwork),
		"status.phase":             string(pod.Status.Phase),
		"status.podIP":             pod.Status.PodIP,
		"status.nominatedNodeName": pod.Status.NominatedNodeName,
	}
}

// parseFields refuses a field by which an apiserver does not select pods.
func parseFields(value string) (fields.Selector, error) {
	selector, err := fields.ParseSelector(value)
	if err != nil {
		return nil, err
	}
	known := fieldsOf(&corev1.Pod{})
	for _, r := range selector.Requirements() {
		if !known.Has(r.Field) {
			return nil, fmt.Errorf("pods are not selected by %s: there are %s", r.Field, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
	}
	return selector, nil
}

// Matches reports whether the caller wants a pod.
func (q *Query) Matches(pod *corev1.Pod) bool {
	return q.labels.Matches(labels.Set(pod.Labels)) && (q.fields.Empty() || q.fields.Matches(fieldsOf(pod)))
}

// Select removes the pods that the caller does not want.
func (q *Query) Select(list *corev1.PodList) {
	list.Items = slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return !q.Matches(&pod) })
}
