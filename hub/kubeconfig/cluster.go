package kubeconfig

import (
	"errors"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// ClusterOf returns the cluster of a kubeconfig's current context, with the contents of the
// files that it refers to.
func ClusterOf(file string) (*clientcmdapi.Cluster, error) {
	all, err := loadFile(file)
	if err != nil {
		return nil, err
	}
	if err := clientcmdapi.MinifyConfig(all); err != nil {
		return nil, err
	}
	if err := clientcmdapi.FlattenConfig(all); err != nil {
		return nil, err
	}
	for _, cluster := range all.Clusters {
		cluster.LocationOfOrigin, cluster.Extensions = "", nil
		return cluster, nil
	}
	return nil, errors.New("it names no cluster")
}
