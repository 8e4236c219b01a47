// Package freeport gives tests ports. See test/cluster/freeport.
package freeport

import (
	"testing"

	"github.com/edgehub-io/edgehub/test/cluster/freeport"
)

// On127 returns a free port of 127.0.0.1, which nobody else is given.
func On127(t testing.TB) int {
	t.Helper()
	port, err := freeport.Take()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// Address is a free port of 127.0.0.1, with the host.
func Address(t testing.TB) string {
	t.Helper()
	address, err := freeport.Address()
	if err != nil {
		t.Fatal(err)
	}
	return address
}
