// Package localendpoints has the pure functions by which EndpointSlices follow the pods of this node. A
// Service then leads to the pods of the node that are ready, with the addresses that they have now.
// Endpoints on other nodes stay as they were read last: nobody here knows better. The slice of the
// apiservers, default/kubernetes, leads to the hub, if pods use it.
//
// Package derived applies them while the cloud is away. Package transform has the slice of the apiservers lead
// to the hub with the cloud, too, for some readers.
package localendpoints
