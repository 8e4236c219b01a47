package transform

import (
	"fmt"
	"net/netip"
	"strings"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/edgehub-io/edgehub/cache/wire"
)

// Transform changes one object, or the objects of one name in all namespaces.
type Transform struct {
	Name string // as in --transforms

	Resource   string // of API group ""
	Namespace  string // empty: all namespaces
	ObjectName string

	// apply returns the object, bare, as the node's own programs read it. It changes nothing
	// that is not its purpose, and fails rather than return half of it.
	apply func(e wire.Encoding, bare []byte) ([]byte, error)
}

// The names of all transforms.
const (
	APIServerService = "apiserver-service"
	RootCA           = "root-ca"
	KubeProxy        = "kube-proxy"
)

// Names returns the names of all transforms.
func Names() []string { return []string{APIServerService, RootCA, KubeProxy} }

// NewAPIServerService returns the transform of the Service default/kubernetes: its addresses
// and port become the hub's. kubelet derives KUBERNETES_SERVICE_HOST and _PORT of pods from it.
// hub is the address for a cluster IP of the same family; a family without one is left as it is.
func NewAPIServerService(hub []netip.Addr, port uint16) Transform {
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
		apply: func(e wire.Encoding, bare []byte) ([]byte, error) {
			return editAll(e, bare, []change{
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

// NewRootCA returns the transform of the ConfigMaps kube-root-ca.crt, which kubelet mounts into
// pods: the CAs that sign the hub's certificate follow the cluster's. cas returns them in PEM.
func NewRootCA(cas func() []byte) Transform {
	return Transform{
		Name: RootCA, Resource: "configmaps", ObjectName: "kube-root-ca.crt",
		apply: func(e wire.Encoding, bare []byte) ([]byte, error) {
			return editData(e, bare, "ca.crt", func(bundle string) (string, error) {
				if bundle != "" && !strings.HasSuffix(bundle, "\n") {
					bundle += "\n"
				}
				return bundle + string(cas()), nil
			})
		},
	}
}

// NewKubeProxy returns the transform of the ConfigMap kube-system/kube-proxy of kubeadm: the
// server of its kubeconfig becomes the hub, at server (https://host:port).
func NewKubeProxy(server string) Transform {
	return Transform{
		Name: KubeProxy, Resource: "configmaps", Namespace: "kube-system", ObjectName: "kube-proxy",
		apply: func(e wire.Encoding, bare []byte) ([]byte, error) {
			return editData(e, bare, "kubeconfig.conf", func(text string) (string, error) {
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

func editAll(e wire.Encoding, bare []byte, changes []change) (_ []byte, err error) {
	for _, c := range changes {
		if bare, err = edit(e, bare, c.path, c.f); err != nil {
			return nil, err
		}
	}
	return bare, nil
}

// editData edits one entry of a ConfigMap's data.
func editData(e wire.Encoding, bare []byte, key string, f func(string) (string, error)) ([]byte, error) {
	const data = 2
	var failed error
	edited, err := edit(e, bare, []step{{name: "data", field: data}, {name: key}}, func(v value) value {
		text, err := f(v.text)
		if err != nil {
			failed = err
		}
		return value{text: text}
	})
	if failed != nil {
		return nil, failed
	}
	return edited, err
}
