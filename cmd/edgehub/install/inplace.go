package install

import (
	"io"

	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/ota/inplace"
)

// checkReconciled returns an error if pods run, since they were upgraded in place, what the cloud does not have: a kubelet that
// reads them from the apiserver would start what they ran before. The files say so, also while no hub runs. No flag overrides it.
func (j *journal) checkReconciled(out io.Writer) error {
	c := &checks{out: out}
	c.checkInPlace(j.Installed.RootDir)
	return c.result()
}

func (c *checks) checkInPlace(root string) {
	dir := (&config.Config{Options: config.Options{RootDir: root}}).InPlaceDir()
	pods, lost, err := inplace.ReadUnreconciled(dir)
	if err != nil {
		c.fail("which pods were upgraded in place is not known, and these would go back to the earlier version, also with --force: mend the folder, or remove it if there are none: %v", err)
	}
	for _, p := range pods {
		c.fail("pod %[1]s/%[2]s was upgraded in place, and the cloud does not have what it runs: without the hub it would go back to the earlier version, also with --force. Let the node be online, with the hub, until edgehub-controller has given the pod its images; or replace it (kubectl delete pod -n %[1]s %[2]s), and wait 5 minutes", p.Namespace, p.Name)
	}
	for _, file := range lost {
		c.fail("%s is damaged, and may be of a pod that was upgraded in place, which would go back to the earlier version, also with --force. Its name has the pod's namespace and UID: if no pod of the node has that UID, or you accept that it goes back, remove the file", file)
	}
}
