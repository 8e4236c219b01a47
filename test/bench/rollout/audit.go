package main

import "github.com/edgehub-io/edgehub/test/internal/audit"

// auditRules leave out whoever is not the controller.
const auditRules = `
  - level: Metadata
    users: ["system:serviceaccount:` + systemNamespace + `:` + account + `"]
  - level: None
`

// requests are numbers of requests by verb and resource.
type requests map[string]int

func (r requests) total() int {
	sum := 0
	for _, n := range r {
		sum += n
	}
	return sum
}

// count counts the requests of edgehub-controller, also those that were refused.
func count(all []audit.Request) requests {
	out := requests{}
	for _, r := range all {
		what := r.Verb + " " + r.ObjectRef.Resource
		if r.ObjectRef.Subresource != "" {
			what += "/" + r.ObjectRef.Subresource
		}
		out[what]++
	}
	return out
}
