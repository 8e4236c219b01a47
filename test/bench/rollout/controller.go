package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/edgehub-io/edgehub/test/bench/process"
	"github.com/edgehub-io/edgehub/test/cluster/freeport"
)

// As in deploy/.
const (
	systemNamespace = "edgehub-system"
	account         = "edgehub-controller"
)

// installController applies deploy/, and returns a kubeconfig with the rights that
// it gives. Its Deployment would be run by nobody.
func (w *world) installController(ctx context.Context) (string, error) {
	if _, err := w.cluster.Kubectl(ctx, "apply", "-k", w.options.deploy); err != nil {
		return "", err
	}
	if _, err := w.cluster.Kubectl(ctx, "-n", systemNamespace, "delete", "deployment", "--all"); err != nil {
		return "", err
	}
	token, err := w.client.CoreV1().ServiceAccounts(systemNamespace).CreateToken(ctx, account,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	c := clientcmdapi.NewConfig()
	c.Clusters[account] = &clientcmdapi.Cluster{Server: w.cluster.ServerURL(), CertificateAuthority: w.cluster.CAFile()}
	c.AuthInfos[account] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	c.Contexts[account] = &clientcmdapi.Context{Cluster: account, AuthInfo: account}
	c.CurrentContext = account
	file := filepath.Join(w.dir, "controller.kubeconfig")
	return file, clientcmd.WriteToFile(*c, file)
}

// controller is a running edgehub-controller, with the flags of deploy/.
type controller struct {
	cmd    *exec.Cmd
	log    *os.File
	exited chan struct{} // closed when it has
}

// startController returns when it has seen every DaemonSet.
func (w *world) startController(ctx context.Context) (*controller, error) {
	address, err := freeport.Address()
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(w.dir, "controller.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	c := &controller{log: log, exited: make(chan struct{})}
	c.cmd = exec.Command(w.options.controller, "--kubeconfig="+w.account, //nolint:noctx // it is stopped in good order
		"--metrics-addr="+address, "--health-probe-addr="+address)
	c.cmd.Stdout, c.cmd.Stderr = log, log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start edgehub-controller: %w", err), log.Close())
	}
	go func() {
		_ = c.cmd.Wait()
		close(c.exited)
	}()
	err = await(ctx, "edgehub-controller is ready", func() (int, error) {
		select {
		case <-c.exited:
			return 0, fmt.Errorf("edgehub-controller has ended: %s; see controller.log with --dir", c.cmd.ProcessState)
		default:
			return unready(ctx, address), nil
		}
	})
	if err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

// unready is 0 when the process at address reports that it is well, and 1 otherwise.
func unready(ctx context.Context, address string) int {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", http.NoBody)
	if err != nil {
		return 1
	}
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		return 1
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return 1
	}
	return 0
}

// stop ends it in good order.
func (c *controller) stop() error {
	select {
	case <-c.exited:
	default:
		if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			return err
		}
		<-c.exited
	}
	return c.log.Close()
}

func (c *controller) usage() (cpu time.Duration, resident, peak int64, err error) {
	pid := c.cmd.Process.Pid
	cpu, errCPU := process.CPU(pid)
	resident, errResident := process.Resident(pid)
	peak, errPeak := process.Peak(pid)
	return cpu, resident, peak, errors.Join(errCPU, errResident, errPeak)
}
