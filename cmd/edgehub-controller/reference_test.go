package main

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/edgehub-io/edgehub/cmd/internal/reference"
	"github.com/edgehub-io/edgehub/controller"
)

func TestFlagsReference(t *testing.T) {
	var c config
	if err := reference.Check("flags.md", name, reference.Flags(c.flags())); err != nil {
		t.Error(err)
	}
}

func TestMetricsReference(t *testing.T) {
	registry := prometheus.NewRegistry()
	if _, err := controller.New(fake.NewClientset(), controller.Options{Registerer: registry}); err != nil {
		t.Fatal(err)
	}
	if _, err := newLeadership(election{}, nil, registry); err != nil {
		t.Fatal(err)
	}
	metrics, err := reference.Metrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	if err := reference.Check("metrics.md", "metrics of the controller", metrics); err != nil {
		t.Error(err)
	}
}
