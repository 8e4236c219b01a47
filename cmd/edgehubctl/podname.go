package main

import "strings"

// podName is a pod as its owner names it.
type podName struct{ namespace, name string }

func (p podName) String() string { return p.namespace + "/" + p.name }

// pod reads NAMESPACE/POD, or POD with -n, or in the namespace default.
func (c *call) pod() (podName, error) {
	namespace, pod, ok := strings.Cut(c.args[0], "/")
	if !ok {
		namespace, pod = c.namespace, c.args[0]
		if namespace == "" {
			namespace = "default"
		}
	}
	if namespace == "" || pod == "" || strings.Contains(pod, "/") {
		return podName{}, wrongUse("%q: want a pod as NAMESPACE/POD, as edgehubctl pods shows them", c.args[0])
	}
	if ok && c.namespace != "" && c.namespace != namespace {
		return podName{}, wrongUse("pod %s is not in namespace %s: leave -n out", c.args[0], c.namespace)
	}
	return podName{namespace, pod}, nil
}
