package cluster

import "net/http"

// Etcd is etcd's process. Kept in EtcdDir, its data can be copied while it is
// stopped, and put back later, as after a restore from a backup; the apiserver has
// to be started again then.
func (c *Cluster) Etcd() *Process { return c.control.etcd.process }

// EtcdDir is the folder of etcd's data.
func (c *Cluster) EtcdDir() string { return c.path("etcd") }

// EtcdClient returns etcd's URL and a client with the apiserver's credentials, for tests
// that read what was really stored: etcd serves its API as JSON, at /v3/watch for one.
func (c *Cluster) EtcdClient() (url string, client *http.Client, err error) {
	client, err = c.control.etcd.client()
	return c.control.etcd.url, client, err
}
