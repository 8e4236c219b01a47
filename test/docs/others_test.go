package docs

// others are names on the pages that edgehub's programs do not have, and whose they are.
var others = map[string]string{
	"--create-namespace": "helm",
	"--set":              "helm",

	"--for":       "kubectl wait, kubectl events",
	"--overwrite": "kubectl annotate",
	"--replicas":  "kubectl scale",

	"--bootstrap-kubeconfig":             "kubelet",
	"--image-credential-provider-config": "kubelet",
	"--kubelet-cgroups":                  "kubelet",
	"--node-labels":                      "kubelet",
	"--system-cgroups":                   "kubelet",

	"--dport":       "iptables",
	"--reject-with": "iptables",
	"--state":       "firewall-cmd",

	"--cgroups":  "podman run",
	"--name":     "systemd-creds",
	"--scope":    "systemd-run",
	"--with-key": "systemd-creds",

	"--all":    "skopeo",
	"--cacert": "curl",
	"--cert":   "curl",
	"--check":  "sha256sum",
	"--input":  "docker load",
	"--strict": "sha256sum",

	"--dir":        "edgehub-cluster",
	"--only":       "make bench",
	"--other-pods": "make bench-rollout",
	"--results":    "make bench",
	"--rounds":     "make bench",

	"apps.openyurt.io/update-stategy": "nobody's: the example of a misspelt key",

	"--access-server-through-hub":                   "YurtHub",
	"--bootstrap-mode":                              "YurtHub",
	"--coordinator-server-addr":                     "YurtHub",
	"--coordinator-storage-addr":                    "YurtHub",
	"--coordinator-storage-prefix":                  "YurtHub",
	"--disabled-resource-filters":                   "YurtHub",
	"--discovery-token-ca-cert-hash":                "YurtHub",
	"--discovery-token-unsafe-skip-ca-verification": "YurtHub",
	"--disk-cache-path":                             "YurtHub",
	"--dummy-if-ip":                                 "YurtHub",
	"--dummy-if-name":                               "YurtHub",
	"--enable-coordinator":                          "YurtHub",
	"--enable-dummy-if":                             "YurtHub",
	"--enable-iptables":                             "YurtHub",
	"--enable-node-pool":                            "YurtHub",
	"--enable-pool-service-topology":                "YurtHub",
	"--enable-resource-filter":                      "YurtHub",
	"--gc-frequency":                                "YurtHub",
	"--heartbeat-failed-retry":                      "YurtHub",
	"--heartbeat-healthy-threshold":                 "YurtHub",
	"--heartbeat-interval-seconds":                  "YurtHub",
	"--heartbeat-timeout-seconds":                   "YurtHub",
	"--hub-cert-organizations":                      "YurtHub",
	"--join-token":                                  "YurtHub",
	"--kubelet-health-grace-period":                 "YurtHub",
	"--max-requests-in-flight":                      "YurtHub",
	"--min-request-timeout":                         "YurtHub",
	"--nodepool-name":                               "YurtHub",
	"--profiling":                                   "YurtHub",
	"--working-mode":                                "YurtHub",
	"--controllers":                                 "yurt-manager",

	"--default-not-ready-toleration-seconds":   "kube-apiserver",
	"--default-unreachable-toleration-seconds": "kube-apiserver",

	"--unhealthy-zone-threshold": "kube-controller-manager",

	"apps.openyurt.io/binding":   "OpenYurt",
	"openyurt.io/is-edge-worker": "OpenYurt; deploy/base reads it",

	"cmd/yurthub/app/options/options.go": "OpenYurt",
	"docs/components/lite-apiserver.md":  "SuperEdge",

	"--cascade":           "kubectl delete",
	"--creds":             "crictl pull",
	"--field-selector":    "kubectl get",
	"--ignore-daemonsets": "kubectl drain",
	"--now":               "systemctl enable",
	"--prune":             "crictl rmi",
	"--raw":               "kubectl get",

	"address already in use":                  "the kernel",
	"certificate signed by unknown authority": "Go, package crypto/x509",
	"path escapes from parent":                "Go, package os",
}
