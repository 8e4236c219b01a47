package feed

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/proxy/topology"
)

// serviceStore passes what a reflector reads of Services to a State.
type serviceStore struct{ state *topology.State }

func (s *serviceStore) Add(object any) error { return s.Update(object) }

func (s *serviceStore) Update(object any) error {
	if service, ok := object.(*corev1.Service); ok {
		s.state.SetService(nameOf(service), filtersOf(service), service.ResourceVersion)
	}
	return nil
}

func (s *serviceStore) Delete(object any) error {
	if service, ok := object.(*corev1.Service); ok {
		s.state.DeleteService(nameOf(service))
	}
	return nil
}

func (s *serviceStore) Replace(objects []any, version string) error {
	all := make(map[types.NamespacedName]topology.Versioned, len(objects))
	for _, object := range objects {
		if service, ok := object.(*corev1.Service); ok {
			all[nameOf(service)] = topology.Versioned{Service: filtersOf(service), Version: service.ResourceVersion}
		}
	}
	s.state.SetServices(all, version)
	return nil
}

func (s *serviceStore) Resync() error { return nil }

func nameOf(s *corev1.Service) types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
}

func filtersOf(s *corev1.Service) topology.Service {
	return topology.ServiceOf(s.Spec.Type, func(key string) (string, bool) {
		value, ok := s.Annotations[key]
		return value, ok
	})
}

// nodeStore passes the labels of this node to a State. A Node that is deleted stays where it
// was until the next list: kubelet is about to create it again.
type nodeStore struct{ state *topology.State }

func (s *nodeStore) Add(object any) error { return s.Update(object) }

func (s *nodeStore) Update(object any) error {
	if node, ok := object.(*metav1.PartialObjectMetadata); ok {
		s.state.SetNode(node.Labels, node.ResourceVersion)
	}
	return nil
}

func (s *nodeStore) Delete(any) error { return nil }

func (s *nodeStore) Replace(objects []any, version string) error {
	if len(objects) == 0 {
		s.state.SetNode(nil, version)
	}
	for _, object := range objects {
		_ = s.Update(object)
	}
	return nil
}

func (s *nodeStore) Resync() error { return nil }

// memberStore passes the names of a pool's nodes to a State. It is for one goroutine, as a
// reflector uses it.
type memberStore struct {
	state *topology.State
	pool  string
	names map[string]bool
}

func (s *memberStore) Add(object any) error { return s.Update(object) }

func (s *memberStore) Update(object any) error {
	if node, ok := object.(*metav1.PartialObjectMetadata); ok {
		s.names[node.Name] = true
		s.state.SetMembers(s.pool, s.names, node.ResourceVersion)
	}
	return nil
}

func (s *memberStore) Delete(object any) error {
	if node, ok := object.(*metav1.PartialObjectMetadata); ok {
		delete(s.names, node.Name)
		s.state.SetMembers(s.pool, s.names, node.ResourceVersion)
	}
	return nil
}

func (s *memberStore) Replace(objects []any, version string) error {
	s.names = map[string]bool{}
	for _, object := range objects {
		if node, ok := object.(*metav1.PartialObjectMetadata); ok {
			s.names[node.Name] = true
		}
	}
	s.state.SetMembers(s.pool, s.names, version)
	return nil
}

func (s *memberStore) Resync() error { return nil }
