package cluster

// Etcd is etcd's process. Kept in EtcdDir, its data can be copied while it is
// stopped, and put back later, as after a restore from a backup; the apiserver has
// to be started again then.
func (c *Cluster) Etcd() *Process { return c.control.etcd.process }

// EtcdDir is the folder of etcd's data.
func (c *Cluster) EtcdDir() string { return c.path("etcd") }
