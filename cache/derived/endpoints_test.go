package derived

import (
	"net/netip"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const here, elsewhere = "node1", "node2"

func slice(endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "d", Name: "s-x", ResourceVersion: "7"},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints,
	}
}

// endpoint is one that is ready.
func endpoint(node, pod, uid, address string) discoveryv1.Endpoint {
	yes, no := true, false
	return discoveryv1.Endpoint{
		Addresses: []string{address}, NodeName: &node,
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: "d", Name: pod, UID: types.UID(uid)},
		Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no},
	}
}

func with(e discoveryv1.Endpoint, ready, serving, terminating bool) discoveryv1.Endpoint {
	e.Conditions = discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating}
	return e
}

type podOption func(*corev1.Pod)

func pod(name, uid string, options ...podOption) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name, UID: types.UID(uid)},
		Status: corev1.PodStatus{
			Phase:      corev1.PodRunning,
			PodIPs:     []corev1.PodIP{{IP: "fd00::5"}, {IP: "10.0.0.5"}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
	for _, o := range options {
		o(p)
	}
	return p
}

func notReady(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }
func failed(p *corev1.Pod)   { p.Status.Phase = corev1.PodFailed }
func deleted(p *corev1.Pod)  { p.DeletionTimestamp = &metav1.Time{} }
func noAddress(p *corev1.Pod) {
	p.Status.PodIPs = nil
}

func ownedBy(kind, name string) podOption {
	return func(p *corev1.Pod) {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: name, Controller: &yes}}
	}
}

func TestEndpointsOfTheNodeFollowItsPods(t *testing.T) {
	read := endpoint(here, "p", "u1", "10.0.0.5")
	other := endpoint(elsewhere, "p", "u1", "10.0.1.9")
	for name, tt := range map[string]struct {
		in   []discoveryv1.Endpoint
		pods []*corev1.Pod
		want []discoveryv1.Endpoint // nil: unchanged
	}{
		"a pod that is as it was":                  {[]discoveryv1.Endpoint{read}, []*corev1.Pod{pod("p", "u1")}, nil},
		"a pod with another address":               {[]discoveryv1.Endpoint{endpoint(here, "p", "u1", "10.0.0.4")}, []*corev1.Pod{pod("p", "u1")}, []discoveryv1.Endpoint{read}},
		"a pod that is not ready":                  {[]discoveryv1.Endpoint{read}, []*corev1.Pod{pod("p", "u1", notReady)}, []discoveryv1.Endpoint{with(read, false, false, false)}},
		"a pod that is ready again":                {[]discoveryv1.Endpoint{with(read, false, false, false)}, []*corev1.Pod{pod("p", "u1")}, []discoveryv1.Endpoint{read}},
		"a pod that is being deleted":              {[]discoveryv1.Endpoint{read}, []*corev1.Pod{pod("p", "u1", deleted)}, []discoveryv1.Endpoint{with(read, false, true, true)}},
		"a pod that has failed":                    {[]discoveryv1.Endpoint{read}, []*corev1.Pod{pod("p", "u1", failed)}, []discoveryv1.Endpoint{}},
		"a pod that has no address":                {[]discoveryv1.Endpoint{read}, []*corev1.Pod{pod("p", "u1", noAddress)}, []discoveryv1.Endpoint{}},
		"a pod that is gone":                       {[]discoveryv1.Endpoint{read}, nil, []discoveryv1.Endpoint{}},
		"another pod of the same name":             {[]discoveryv1.Endpoint{read}, []*corev1.Pod{pod("p", "u2")}, []discoveryv1.Endpoint{}},
		"a pod of another node":                    {[]discoveryv1.Endpoint{other}, nil, nil},
		"a pod of another node keeps its place":    {[]discoveryv1.Endpoint{read, other}, nil, []discoveryv1.Endpoint{other}},
		"a StatefulSet's pod that came back":       {[]discoveryv1.Endpoint{read}, []*corev1.Pod{pod("p", "u2", ownedBy("StatefulSet", "s"))}, []discoveryv1.Endpoint{endpoint(here, "p", "u2", "10.0.0.5")}},
		"a DaemonSet's pod that came back":         {[]discoveryv1.Endpoint{endpoint(here, "ds-abcde", "u1", "10.0.0.4")}, []*corev1.Pod{pod("ds-fghij", "u2", ownedBy("DaemonSet", "ds"))}, []discoveryv1.Endpoint{endpoint(here, "ds-fghij", "u2", "10.0.0.5")}},
		"a pod of a DaemonSet with a longer name":  {[]discoveryv1.Endpoint{endpoint(here, "ds-x-abcde", "u1", "10.0.0.4")}, []*corev1.Pod{pod("ds-fghij", "u2", ownedBy("DaemonSet", "ds"))}, []discoveryv1.Endpoint{}},
		"a DaemonSet of a StatefulSet's name":      {[]discoveryv1.Endpoint{endpoint(here, "web-0", "u1", "10.0.0.4")}, []*corev1.Pod{pod("web-fghij", "u2", ownedBy("DaemonSet", "web"))}, []discoveryv1.Endpoint{}},
		"a Service that publishes all addresses":   {[]discoveryv1.Endpoint{with(read, true, false, false)}, []*corev1.Pod{pod("p", "u1", notReady)}, nil},
		"a deletion that the pod does not show":    {[]discoveryv1.Endpoint{with(read, false, true, true)}, []*corev1.Pod{pod("p", "u1")}, nil},
		"the deletion of the pod before":           {[]discoveryv1.Endpoint{with(read, false, true, true)}, []*corev1.Pod{pod("p", "u2", ownedBy("StatefulSet", "s"))}, []discoveryv1.Endpoint{endpoint(here, "p", "u2", "10.0.0.5")}},
		"an endpoint that somebody wrote":          {[]discoveryv1.Endpoint{{Addresses: []string{"10.9.9.9"}}}, nil, nil},
		"conditions that have their default value": {[]discoveryv1.Endpoint{func() discoveryv1.Endpoint { e := read; e.Conditions = discoveryv1.EndpointConditions{}; return e }()}, []*corev1.Pod{pod("p", "u1")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			in := slice(tt.in...)
			before := in.DeepCopy()
			got, changed := followPods(in, here, nodePods{List: tt.pods, Complete: true})
			if !reflect.DeepEqual(in, before) {
				t.Error("the input was changed")
			}
			if changed != (tt.want != nil) {
				t.Fatalf("changed: %v; got %+v", changed, got.Endpoints)
			}
			if tt.want == nil {
				return
			}
			if len(got.Endpoints) != len(tt.want) || len(tt.want) > 0 && !reflect.DeepEqual(got.Endpoints, tt.want) {
				t.Errorf("got %+v\nwant %+v", got.Endpoints, tt.want)
			}
			if got.ResourceVersion != "7" {
				t.Errorf("its version is %s", got.ResourceVersion)
			}
		})
	}
}

// Pods that nobody here knows may be new ones.
func TestEndpointsOfUnknownPodsStay(t *testing.T) {
	in := slice(endpoint(here, "p", "u1", "10.0.0.4"), endpoint(here, "q", "u2", "10.0.0.6"))
	got, changed := followPods(in, here, nodePods{List: []*corev1.Pod{pod("p", "u1")}})
	want := []discoveryv1.Endpoint{endpoint(here, "p", "u1", "10.0.0.5"), endpoint(here, "q", "u2", "10.0.0.6")}
	if !changed || !reflect.DeepEqual(got.Endpoints, want) {
		t.Errorf("got %+v\nwant %+v", got.Endpoints, want)
	}
}

func TestTheAPIServersSliceLeadsToTheHub(t *testing.T) {
	tcp, udp, port := corev1.ProtocolTCP, corev1.ProtocolUDP, int32(6443)
	in := slice(discoveryv1.Endpoint{Addresses: []string{"192.0.2.1"}}, discoveryv1.Endpoint{Addresses: []string{"192.0.2.2"}})
	in.Ports = []discoveryv1.EndpointPort{{Port: &port}, {Port: &port, Protocol: &tcp}, {Port: &port, Protocol: &udp}}
	v4, v6 := netip.MustParseAddrPort("169.254.2.1:10268"), netip.MustParseAddrPort("[fd00::2:1]:10269")
	for name, tt := range map[string]struct {
		family  discoveryv1.AddressType
		hub     []netip.AddrPort
		address string // empty: unchanged
		port    int32
	}{
		"IPv4":                     {discoveryv1.AddressTypeIPv4, []netip.AddrPort{v6, v4}, "169.254.2.1", 10268},
		"IPv6":                     {discoveryv1.AddressTypeIPv6, []netip.AddrPort{v4, v6}, "fd00::2:1", 10269},
		"no address of the family": {discoveryv1.AddressTypeIPv6, []netip.AddrPort{v4}, "", 0},
		"no address":               {discoveryv1.AddressTypeIPv4, nil, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			in := in.DeepCopy()
			in.AddressType = tt.family
			before := in.DeepCopy()
			got, ok := leadToHub(in, tt.hub)
			if !reflect.DeepEqual(in, before) {
				t.Error("the input was changed")
			}
			if ok != (tt.address != "") {
				t.Fatalf("changed: %v", ok)
			}
			if !ok {
				return
			}
			if len(got.Endpoints) != 1 || got.Endpoints[0].Addresses[0] != tt.address || !*got.Endpoints[0].Conditions.Ready {
				t.Errorf("its endpoints are %+v", got.Endpoints)
			}
			if *got.Ports[0].Port != tt.port || *got.Ports[1].Port != tt.port || *got.Ports[2].Port != port {
				t.Errorf("its ports are %+v", got.Ports)
			}
		})
	}
}
