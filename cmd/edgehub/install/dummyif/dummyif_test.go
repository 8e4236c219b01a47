package dummyif

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
)

var addresses = []netip.Addr{netip.MustParseAddr("169.254.2.1"), netip.MustParseAddr("fd00::2:1")}

func TestOnlyTheCommandsOfTheUnitMayChangeTheNetwork(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT RUN: the commands that set up the interface: it takes root to find out which the kernel has")
	}
	lines, err := UnitLines(t.Context(), "edgehub-dummy0", addresses)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(lines, "\n")
	for _, want := range []string{
		"link add edgehub-dummy0 type ", "address replace 169.254.2.1/32 dev edgehub-dummy0\n",
		"address replace fd00::2:1/128 dev edgehub-dummy0 nodad", "link set edgehub-dummy0 up", "CapabilityBoundingSet=CAP_NET_ADMIN",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if lines, err := UnitLines(t.Context(), "edgehub-dummy0", nil); err != nil || lines != nil {
		t.Errorf("without addresses: %v, %v", lines, err)
	}
}

func TestAddressesOfOtherInterfaces(t *testing.T) {
	for name, tt := range map[string]struct {
		there        []string
		fails, notes bool
	}{
		"none":                                  {nil, false, false},
		"other addresses, as of NodeLocal DNS":  {[]string{"169.254.20.10/32", "10.0.0.7/24"}, false, false},
		"the same IPv4 address":                 {[]string{"169.254.2.1/32"}, true, false},
		"the same IPv6 address":                 {[]string{"fd00::2:1/64"}, true, false},
		"a network that the address is part of": {[]string{"169.254.7.7/16"}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			var there []netip.Prefix
			for _, text := range tt.there {
				there = append(there, netip.MustParsePrefix(text))
			}
			notes, err := overlap("eth0", there, addresses)
			if (err != nil) != tt.fails || (len(notes) > 0) != tt.notes {
				t.Errorf("%v, %v", notes, err)
			}
		})
	}
}

func TestAnInterfaceOfSomebodyElseIsNotTaken(t *testing.T) {
	if _, err := Check(t.Context(), "lo", addresses, false); err == nil || !strings.Contains(err.Error(), "--dummy-if-name") {
		t.Errorf("lo: %v", err)
	}
	notes, err := Check(t.Context(), "edgehub-none0", []netip.Addr{netip.MustParseAddr("127.0.0.1")}, false)
	if err == nil || !strings.Contains(err.Error(), "--dummy-if-ip") {
		t.Errorf("an address of lo: %v", err)
	}
	if slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, "127.0.0.1 is in") }) {
		t.Errorf("notes: %v", notes)
	}
	if err := Remove(t.Context(), "lo"); err != nil {
		t.Errorf("lo is no dummy, and stays: %v", err)
	}
}
