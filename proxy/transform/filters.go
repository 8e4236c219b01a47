package transform

import (
	"hash/fnv"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cache/wire"
	"github.com/edgehub-io/edgehub/proxy/topology"
)

// filter is what the filters of Services have in common.
type filter struct {
	accounts []string // whose reads are filtered, as namespace/name
	// drops reports whether the accounts do not read a Service; nil for other resources.
	drops func(types.NamespacedName, *topology.Service) bool
}

// NewServiceTopology returns the filter of EndpointSlices: of a Service that asks for it, the
// service accounts read the endpoints on this node, in its zone or in its pool only.
func NewServiceTopology(s *topology.State, accounts []string) Transform {
	return Transform{
		Name: ServiceTopology, Group: discoveryv1.GroupName, Resource: "endpointslices",
		filter: &filter{accounts: accounts}, idle: func() bool { return !s.HasKeys() },
		apply: func(o *object) (result, error) {
			keep := s.Endpoints(serviceOfSlice(o.meta))
			if keep == nil {
				return result{bare: o.bare}, nil
			}
			return o.keepEndpoints(keep)
		},
	}
}

// NewClusterIP returns the filter of the apiserver's EndpointSlices: while s has them lead to the hub, the service
// accounts, of programs that carry the traffic of Services, read them as everybody does in an outage. hub is
// where pods reach it, at most one address of each family. lead returns a bare slice that leads there, and whether
// it differs.
func NewClusterIP(s *topology.State, accounts []string, hub []netip.AddrPort, lead func(wire.Encoding, []byte, []netip.AddrPort) ([]byte, bool, error)) Transform {
	name := topology.APIServer()
	return Transform{
		Name: ClusterIP, Group: discoveryv1.GroupName, Resource: "endpointslices", Namespace: name.Namespace, ObjectName: name.Name,
		filter: &filter{accounts: accounts}, idle: func() bool { return !s.APIServerLeads() },
		apply: func(o *object) (result, error) {
			if !s.APIServerLeads() {
				return result{bare: o.bare}, nil
			}
			bare, changed, err := lead(o.encoding, o.bare, hub)
			if err != nil || !changed {
				return result{bare: o.bare}, err
			}
			if version := filteredVersion(string(o.meta.ResourceVersion), 0); version != "" {
				bare, err = wire.SetVersion(o.encoding, bare, version)
			}
			return result{bare: bare, changed: true}, err
		},
	}
}

// NewDiscardService returns the filter of Services that only the cloud is to use: the service
// accounts do not read them.
func NewDiscardService(s *topology.State, accounts []string) Transform {
	return serviceFilter(DiscardService, accounts, topology.DiscardAnnotation, s.Discarded)
}

// NewNodePortIsolation returns the filter of Services whose NodePorts do not listen in this
// node's pool: the service accounts do not read them.
func NewNodePortIsolation(s *topology.State, accounts []string) Transform {
	return serviceFilter(NodePortIsolation, accounts, topology.ListenAnnotation, s.Isolated)
}

func serviceFilter(name string, accounts []string, annotation string, drops func(types.NamespacedName, *topology.Service) bool) Transform {
	return Transform{
		Name: name, Resource: "services", filter: &filter{accounts: accounts, drops: drops},
		apply: func(o *object) (result, error) {
			if _, ok := o.meta.Annotation(annotation); !ok {
				return result{bare: o.bare}, nil
			}
			service, err := o.service()
			if err != nil {
				return result{}, err
			}
			return result{bare: o.bare, dropped: drops(nameOf(o.meta), &service)}, nil
		},
	}
}

// service returns what is read of a Service.
func (o *object) service() (topology.Service, error) {
	const spec, serviceType = 2, 4
	var kind corev1.ServiceType
	_, err := edit(o.encoding, o.bare, []step{{name: "spec", field: spec}, {name: "type", field: serviceType}}, func(v value) value {
		kind = corev1.ServiceType(v.text)
		return v
	})
	return topology.ServiceOf(kind, func(key string) (string, bool) {
		v, ok := o.meta.Annotation(key)
		return string(v), ok
	}), err
}

// keepEndpoints leaves the endpoints of a slice out that keep does not want, all of them if
// need be.
func (o *object) keepEndpoints(keep topology.Filter) (result, error) {
	const endpoints, nodeName, zone = 2, 6, 7
	content := fnv.New64a()
	bare, changed, err := editElements(o.encoding, o.bare, step{name: "endpoints", field: endpoints}, func(endpoint []byte) (bool, error) {
		fields, err := texts(o.encoding, endpoint, step{name: "nodeName", field: nodeName}, step{name: "zone", field: zone})
		if err != nil || !keep(fields[0], fields[1]) {
			return false, err
		}
		_, err = content.Write(endpoint)
		return true, err
	})
	if err != nil || !changed {
		return result{bare: o.bare}, err
	}
	if version := filteredVersion(string(o.meta.ResourceVersion), content.Sum64()); version != "" {
		bare, err = wire.SetVersion(o.encoding, bare, version)
	}
	return result{bare: bare, changed: true}, err
}

// filteredVersion returns the resourceVersion of a slice at this version with this content, or
// "" if there is none.
//
// It has to differ from that of the same slice with other endpoints: an informer does not
// report an object whose version it knows. It must be the same for the same endpoints, so that
// a slice that is sent again is no change. And it must be lower than the slice's own, since a
// client that resumes its watch from it would otherwise miss what came before it.
func filteredVersion(version string, content uint64) string {
	const most = 1 << 16
	v, err := strconv.ParseUint(version, 10, 64)
	if err != nil || v < 2 {
		return ""
	}
	return strconv.FormatUint(v-1-content%min(v-1, most), 10)
}

// serviceOfSlice returns the Service of a slice. It is in the slice's namespace: nobody's
// annotations act on the slices of another namespace.
func serviceOfSlice(m *wire.Meta) types.NamespacedName {
	name := types.NamespacedName{Namespace: string(m.Namespace)}
	for key, v := range m.Labels() {
		if string(key) == discoveryv1.LabelServiceName {
			name.Name = string(v)
		}
	}
	return name
}

func nameOf(m *wire.Meta) types.NamespacedName {
	return types.NamespacedName{Namespace: string(m.Namespace), Name: string(m.Name)}
}

// idle reports whether no object can be changed.
func (a *answer) idle() bool {
	return !slices.ContainsFunc(a.transforms, func(t *Transform) bool { return t.idle == nil || !t.idle() })
}
