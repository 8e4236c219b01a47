package topology

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The annotations of Services, and the label of Nodes, are OpenYurt's.
const (
	KeysAnnotation    = "openyurt.io/topologyKeys"
	DiscardAnnotation = "svc.openyurt.io/discard"
	ListenAnnotation  = "nodeport.openyurt.io/listen"
	PoolLabel         = "apps.openyurt.io/nodepool"
)

// Service is what the filters read of a Service. It is zero for one without their annotations.
type Service struct {
	Type    corev1.ServiceType // with DiscardAnnotation or ListenAnnotation only
	Keys    string             // of KeysAnnotation
	Discard bool
	Listen  string // of ListenAnnotation
	Listens bool   // it has ListenAnnotation, which may be empty
}

// ServiceOf returns what the filters read of a Service of this type and with these annotations.
func ServiceOf(t corev1.ServiceType, annotation func(key string) (string, bool)) Service {
	var s Service
	s.Keys, _ = annotation(KeysAnnotation)
	s.Keys = strings.TrimSpace(s.Keys)
	discard, _ := annotation(DiscardAnnotation)
	s.Discard = discard == "true"
	s.Listen, s.Listens = annotation(ListenAnnotation)
	if s.Discard || s.Listens {
		s.Type = t
	}
	return s
}

// APIServer is the Service of the apiserver. It is never filtered: its endpoints name no node,
// and without them pods lose the apiserver.
func APIServer() types.NamespacedName {
	return types.NamespacedName{Namespace: "default", Name: "kubernetes"}
}

// scope is the endpoints that remain of a Service.
type scope int

const (
	everywhere scope = iota
	sameNode
	sameZone
	samePool
)

// scopeOf returns the scope that a value of KeysAnnotation names. known is false for a value
// that nothing defines.
func scopeOf(keys string) (s scope, known bool) {
	switch keys {
	case "":
		return everywhere, true
	case corev1.LabelHostname:
		return sameNode, true
	case "kubernetes.io/zone", corev1.LabelTopologyZone:
		return sameZone, true
	case "openyurt.io/nodepool":
		return samePool, true
	}
	return everywhere, false
}

// hasNodePorts reports whether kube-proxy opens ports on nodes for the Service.
func (s *Service) hasNodePorts() bool {
	return s.Type == corev1.ServiceTypeNodePort || s.Type == corev1.ServiceTypeLoadBalancer
}

// listensIn reports whether NodePorts are open in a pool. The value is a list of pools: NAME,
// -NAME for all but this one, and * for all that are not named. The first entry of a name
// counts, and a pool that no entry is for is closed.
func listensIn(value, pool string) bool {
	others := false
	for entry := range strings.SplitSeq(value, ",") {
		entry = strings.TrimSpace(entry)
		switch name, not := strings.CutPrefix(entry, "-"); name {
		case pool:
			return !not
		case "*":
			others = others || !not
		}
	}
	return others
}
