package transform

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/edgehub-io/edgehub/cache/wire"
)

// Transform changes one object, the objects of one name in all namespaces, or all objects of a
// resource.
type Transform struct {
	Name string // as in --transforms, or ClusterIP, or UpgradeInPlace

	Group      string // of the resource; all have version v1
	Resource   string
	Namespace  string // empty: all namespaces
	ObjectName string // empty: all names

	// filter is set for a filter of Services, and nil for what the node itself reads.
	filter *filter
	// reader reports whether what the node itself reads is for the sender of a request; nil: it is.
	reader func(http.Header) bool
	// idle reports whether no object can be changed; nil: never. What is decided meanwhile is corrected in the watch.
	idle func() bool
	// pods is what decides, if that may change while kubelet watches.
	pods PodImages

	// apply returns the object as its readers get it. It changes nothing that is not its
	// purpose, and fails rather than return half of it.
	apply func(o *object) (result, error)
}

// object is a bare object.
type object struct {
	encoding wire.Encoding
	bare     []byte
	meta     *wire.Meta
}

// result is what has become of an object.
type result struct {
	bare    []byte
	changed bool // bare is not what it was
	dropped bool // its readers do not read it at all
}

// The names of all transforms.
const (
	APIServerService  = "apiserver-service"
	RootCA            = "root-ca"
	KubeProxy         = "kube-proxy"
	ServiceTopology   = "service-topology"
	DiscardService    = "discard-service"
	NodePortIsolation = "nodeport-isolation"
	ClusterIP         = "cluster-ip" // of --cluster-ip
	UpgradeInPlace    = "upgrade-in-place"
)

// Names returns the names of all transforms that --transforms may have.
func Names() []string {
	return []string{APIServerService, RootCA, KubeProxy, ServiceTopology, DiscardService, NodePortIsolation}
}

// NewAPIServerService returns the transforms by which pods talk to the hub. The addresses and port of
// the Service default/kubernetes become the hub's: kubelet derives KUBERNETES_SERVICE_HOST and _PORT
// of pods from it. Containers with a proxy reach the hub without it: see [newNoProxy].
// hub is the address for a cluster IP of the same family; a family without one is left as it is.
func NewAPIServerService(hub []netip.Addr, port uint16) []Transform {
	return []Transform{newAPIServerAddress(hub, port), newNoProxy(hub)}
}

func newAPIServerAddress(hub []netip.Addr, port uint16) Transform {
	address := func(v value) value {
		cluster, err := netip.ParseAddr(v.text)
		if err != nil {
			return v
		}
		for _, a := range hub {
			if a.Is4() == cluster.Is4() {
				return value{text: a.String()}
			}
		}
		return v
	}
	const spec, clusterIP, clusterIPs, ports, portNumber = 2, 3, 18, 1, 3
	return Transform{
		Name: APIServerService, Resource: "services", Namespace: "default", ObjectName: "kubernetes",
		apply: func(o *object) (result, error) {
			return o.editAll([]change{
				{[]step{{name: "spec", field: spec}, {name: "clusterIP", field: clusterIP}}, address},
				{[]step{{name: "spec", field: spec}, {name: "clusterIPs", field: clusterIPs, each: true}}, address},
				{
					[]step{{name: "spec", field: spec}, {name: "ports", field: ports, each: true}, {name: "port", field: portNumber}},
					func(value) value { return value{number: int64(port)} },
				},
			})
		},
	}
}

// NewRootCA returns the transforms of what kubelet mounts into pods as the cluster's CA: the CAs that
// sign the hub's certificate follow it. It is the ConfigMap kube-root-ca.crt of each namespace, and
// every copy of the cluster's CA: see [followCA]. hub returns the hub's CAs, cluster those by which the
// hub itself verifies the apiserver, both in PEM.
func NewRootCA(hub, cluster func() []byte) []Transform {
	return []Transform{
		{Name: RootCA, Resource: "secrets", apply: func(o *object) (result, error) { return followCA(o, true, hub, cluster) }},
		{Name: RootCA, Resource: "configmaps", apply: func(o *object) (result, error) {
			if string(o.meta.Name) != "kube-root-ca.crt" {
				return followCA(o, false, hub, cluster)
			}
			return o.editData("ca.crt", func(bundle string) (string, error) { return follow(bundle, hub()), nil })
		}},
	}
}

// NewKubeProxy returns the transform of the ConfigMap kube-system/kube-proxy of kubeadm: the
// server of its kubeconfig becomes the hub, at server (https://host:port).
func NewKubeProxy(server string) Transform {
	return Transform{
		Name: KubeProxy, Resource: "configmaps", Namespace: "kube-system", ObjectName: "kube-proxy",
		apply: func(o *object) (result, error) {
			return o.editData("kubeconfig.conf", func(text string) (string, error) {
				config, err := clientcmd.Load([]byte(text))
				if err != nil {
					return "", fmt.Errorf("kubeconfig.conf: %w", err)
				}
				for _, cluster := range config.Clusters {
					cluster.Server = server
				}
				out, err := clientcmd.Write(*config)
				return string(out), err
			})
		},
	}
}

// change is a replacement of the values to which a path leads.
type change struct {
	path []step
	f    func(value) value
}

func (o *object) editAll(changes []change) (result, error) {
	bare := o.bare
	for _, c := range changes {
		var err error
		if bare, err = edit(o.encoding, bare, c.path, c.f); err != nil {
			return result{}, err
		}
	}
	return result{bare: bare, changed: true}, nil
}

// editData edits one entry of a ConfigMap's data.
func (o *object) editData(key string, f func(string) (string, error)) (result, error) {
	const data = 2
	var failed error
	edited, err := edit(o.encoding, o.bare, []step{{name: "data", field: data}, {name: key}}, func(v value) value {
		text, err := f(v.text)
		if err != nil {
			failed = err
		}
		return value{text: text}
	})
	return result{bare: edited, changed: true}, cmp.Or(failed, err)
}
