package derived

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// leadToHub returns the slice of the apiservers with the hub as its only endpoint, at the address
// of the slice's family, and whether there is one. The Service's cluster IP then leads to the hub.
func leadToHub(slice *discoveryv1.EndpointSlice, hub []netip.AddrPort) (*discoveryv1.EndpointSlice, bool) {
	for _, address := range hub {
		if address.Addr().Is4() != (slice.AddressType == discoveryv1.AddressTypeIPv4) {
			continue
		}
		out := slice.DeepCopy()
		ready, terminating := true, false
		out.Endpoints = []discoveryv1.Endpoint{{
			Addresses:  []string{address.Addr().String()},
			Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready, Terminating: &terminating},
		}}
		port := int32(address.Port())
		for i := range out.Ports {
			if p := &out.Ports[i]; p.Protocol == nil || *p.Protocol == corev1.ProtocolTCP {
				p.Port = &port
			}
		}
		return out, true
	}
	return slice, false
}

// LeadBareToHub is leadToHub for a slice as it is encoded, without an envelope.
func LeadBareToHub(e wire.Encoding, bare []byte, hub []netip.AddrPort) ([]byte, bool, error) {
	object, err := convert.FromBare(e, wire.TypeMeta{APIVersion: discoveryv1.SchemeGroupVersion.String(), Kind: "EndpointSlice"}, bare)
	if err != nil {
		return nil, false, err
	}
	led, changed := leadToHub(object.(*discoveryv1.EndpointSlice), hub) //nolint:forcetypeassert // of this type
	if !changed {
		return bare, false, nil
	}
	out, err := convert.ToBare(e, led)
	return out, true, err
}
