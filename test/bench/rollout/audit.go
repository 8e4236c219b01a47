package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// audit counts the requests of edgehub-controller, as the apiserver's audit log
// has them: each once, when it arrives, also those that are refused.
type audit struct {
	policy, log string
}

// auditPolicy leaves out whoever is not the controller.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted, ResponseComplete, Panic]
rules:
  - level: Metadata
    users: ["system:serviceaccount:` + systemNamespace + `:` + account + `"]
  - level: None
`

func newAudit(dir string) (*audit, error) {
	a := &audit{policy: filepath.Join(dir, "audit-policy.yaml"), log: filepath.Join(dir, "audit.log")}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return a, os.WriteFile(a.policy, []byte(auditPolicy), 0o644)
}

// args are the apiserver's flags.
func (a *audit) args() []string {
	return []string{
		"--audit-policy-file=" + a.policy,
		"--audit-log-path=" + a.log,
		"--audit-log-maxsize=10000", // MB: one file, whatever happens
	}
}

// size is where the log ends now.
func (a *audit) size() (int64, error) {
	info, err := os.Stat(a.log)
	if os.IsNotExist(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// requests are numbers of requests by verb and resource.
type requests map[string]int

func (r requests) total() int {
	sum := 0
	for _, n := range r {
		sum += n
	}
	return sum
}

// between counts the requests in a part of the log.
func (a *audit) between(from, to int64) (requests, error) {
	file, err := os.Open(a.log)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	out := requests{}
	lines := bufio.NewReader(io.NewSectionReader(file, from, to-from))
	decoder := json.NewDecoder(lines)
	for {
		var event struct {
			Verb      string `json:"verb"`
			ObjectRef struct {
				Resource    string `json:"resource"`
				Subresource string `json:"subresource"`
			} `json:"objectRef"`
		}
		err := decoder.Decode(&event)
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		what := event.Verb + " " + event.ObjectRef.Resource
		if event.ObjectRef.Subresource != "" {
			what += "/" + event.ObjectRef.Subresource
		}
		out[what]++
	}
}
