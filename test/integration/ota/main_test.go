// Package ota tests the node's HTTP API against a real apiserver, with the
// identity a node has there. Pods are made by the real controllers; no kubelet
// runs, so a deleted pod stays, marked as being deleted, until the test ends it.
package ota

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
