package kubeconfig

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"

	"k8s.io/client-go/rest"
)

// readFiles reads the files that config refers to into config.
func readFiles(config *rest.Config) error {
	for _, f := range []struct {
		name string
		into *[]byte
	}{
		{config.CAFile, &config.CAData},
		{config.CertFile, &config.CertData},
		{config.KeyFile, &config.KeyData},
	} {
		if f.name == "" || len(*f.into) > 0 {
			continue
		}
		data, err := os.ReadFile(f.name)
		if err != nil {
			return err
		}
		*f.into = data
	}
	if config.BearerTokenFile != "" {
		data, err := os.ReadFile(config.BearerTokenFile)
		if err != nil {
			return err
		}
		if len(data) == 0 {
			return fmt.Errorf("token file %s is empty", config.BearerTokenFile)
		}
		config.BearerToken = string(data)
	}
	return nil
}

// digestOf returns a digest of the kubeconfig, raw, and of the files that it refers to, whose
// contents are in config.
func digestOf(raw []byte, config *rest.Config) [32]byte {
	h := sha256.New()
	for _, part := range [][]byte{raw, []byte(config.BearerToken), config.CAData, config.CertData, config.KeyData} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write(part)
	}
	return [32]byte(h.Sum(nil))
}
