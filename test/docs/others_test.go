package docs

// others are names on the pages that edgehub's programs do not have, and whose they are.
var others = map[string]string{
	"--create-namespace": "helm",

	"--for":       "kubectl wait, kubectl events",
	"--overwrite": "kubectl annotate",
	"--replicas":  "kubectl scale",

	"--bootstrap-kubeconfig":             "kubelet",
	"--image-credential-provider-config": "kubelet",
	"--kubelet-cgroups":                  "kubelet",
	"--system-cgroups":                   "kubelet",

	"--cgroups":  "podman run",
	"--name":     "systemd-creds",
	"--scope":    "systemd-run",
	"--with-key": "systemd-creds",

	"--all":    "skopeo",
	"--check":  "sha256sum",
	"--input":  "docker load",
	"--strict": "sha256sum",

	"--only":       "make bench",
	"--other-pods": "make bench-rollout",
	"--rounds":     "make bench",

	"apps.openyurt.io/update-stategy": "nobody's: the example of a misspelt key",
}
