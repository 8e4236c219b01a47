package cluster

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// kubeconfig describes how one client reaches one server. Paths are absolute.
type kubeconfig struct {
	server     string
	caFile     string // empty for plain http
	serverName string // that the server's certificate has; empty: that in server
	certFile   string // empty: no credentials at all
	keyFile    string
}

func (k kubeconfig) write(file string) error {
	config := api.NewConfig()
	config.Clusters["cluster"] = &api.Cluster{Server: k.server, CertificateAuthority: k.caFile, TLSServerName: k.serverName}
	config.AuthInfos["user"] = &api.AuthInfo{ClientCertificate: k.certFile, ClientKey: k.keyFile}
	config.Contexts["context"] = &api.Context{Cluster: "cluster", AuthInfo: "user"}
	config.CurrentContext = "context"
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}
