// Package install switches a kubeadm node to a hub: kubelet then uses the hub as its apiserver. It
// also upgrades and uninstalls the hub.
//
// It changes none of kubeadm's files. It writes:
//
//	/usr/local/bin/edgehub                                this very program
//	/etc/systemd/system/edgehub.service, edgehub.socket   and the links that enable them
//	/etc/systemd/network/00-edgehub.network               systemd-networkd leaves the dummy interface alone, and
//	/etc/NetworkManager/conf.d/00-edgehub.conf            so does NetworkManager, where there is one
//	/etc/edgehub/edgehub.env                              the administrator's flags
//	/etc/kubernetes/edgehub-kubelet.conf                  kubelet's kubeconfig for the hub
//	/etc/systemd/system/kubelet.service.d/20-edgehub.conf makes kubelet use it, by
//	/etc/edgehub/kubelet.env                              which is gone while kubelet joins a cluster (rejoin.go)
//	/etc/systemd/system/edgehub-rejoin.service            has kubelet use it again after that
//	/var/lib/edgehub-install                              the record, and backups
//
// # Commit and rollback
//
// [Install] checks everything that it needs (checks.go), and prints what it will write and run
// (plan.go). Before it changes the first file, it backs up the present files and records the
// change on disk (record.go). If a step fails, or the program is stopped, it rolls back to the
// backups (rollback.go), which may contain an earlier version of the hub. If it is killed, or
// the power fails, the next install or uninstall finds the record and rolls back. The steps have
// no undo of their own, since one restore of all files can be repeated after a crash at any
// point. The commit point is writing a record without a change in progress.
//
// A lock on the record's folder allows one change at a time.
package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/edgehub-io/edgehub/cmd/edgehub/install/dummyif"
	"github.com/edgehub-io/edgehub/cmd/edgehub/install/files"
	"github.com/edgehub-io/edgehub/cmd/edgehub/install/systemctl"
	"github.com/edgehub-io/edgehub/ota/api"
)

// Install switches the node to a hub, or upgrades the node's hub. given reports which flags were
// given, version is this program's. It prints its progress to out. If it fails after it has started to
// change the node, or ctx ends, it rolls back and returns an error.
func Install(ctx context.Context, o *Options, given func(string) bool, version string, out io.Writer) error {
	if err := checkPrerequisites(); err != nil {
		return err
	}
	if o.DryRun {
		return describe(ctx, o, given, version, out)
	}
	j, err := openJournal()
	if err != nil {
		return err
	}
	defer j.close()
	if err := j.keepHub(out); err != nil {
		return err
	}
	if err := j.recoverChange(ctx, max(o.Wait, DefaultWait), out); err != nil {
		return err
	}
	p, err := prepare(ctx, o, given, j.Installed, version, out)
	if err != nil {
		return err
	}
	if p.upToDate() {
		fmt.Fprintln(out, "\nedgehub is installed and runs as asked already; nothing was changed")
		if err := p.checkReach(ctx, out); err != nil { // somebody may have changed the firewall
			return err
		}
		p.printPods(ctx, out)
		return nil
	}
	p.print(out, false)
	fmt.Fprintln(out)
	if err := j.begin(p); err != nil {
		return err
	}
	if err := p.apply(ctx, j, out); err != nil {
		fmt.Fprintf(out, "FAILED: %v\n", err)
		line, _, _ := strings.Cut(err.Error(), "\n") // the rest, a journal, was printed
		if undoErr := j.rollback(context.WithoutCancel(ctx), p.cloud, o.NodeName, max(o.Wait, DefaultWait), out); undoErr != nil {
			return fmt.Errorf("%s\nand not all is as it was: %w", line, undoErr)
		}
		return fmt.Errorf("everything was put back as it was: %s", line)
	}
	if err := j.commit(p); err != nil {
		return err
	}
	fmt.Fprintf(out, "done: node %s lives behind edgehub %s\n", o.NodeName, version)
	p.printPods(ctx, out)
	return nil
}

// describe prints what Install would do.
func describe(ctx context.Context, o *Options, given func(string) bool, version string, out io.Writer) error {
	r, err := readRecord()
	if err != nil {
		return err
	}
	if r.Change != nil {
		fmt.Fprintln(out, "an earlier change was broken off; it would be cleared up first")
	}
	p, err := prepare(ctx, o, given, r.Installed, version, out)
	if err != nil {
		return err
	}
	p.print(out, true)
	fmt.Fprintln(out, "\nnothing was changed: --dry-run")
	return nil
}

// begin backs up the files that the plan replaces, and records the change.
func (j *journal) begin(p *plan) error {
	c := &change{Before: map[string]files.Entry{}, Sockets: p.sockets}
	if name := p.options.dummyIf(p.config); j.Installed == nil || j.Installed.Interface != name {
		c.Interface = name
	}
	for _, f := range p.all {
		e, err := j.backUp(f.path)
		if err != nil {
			return err
		}
		c.Before[f.path] = e
		for _, dir := range files.MissingDirs(f.path) {
			if !slices.Contains(c.Folders, dir) {
				c.Folders = append(c.Folders, dir)
			}
		}
	}
	if _, err := os.Lstat(p.config.RootDir); errors.Is(err, os.ErrNotExist) {
		c.FreshRoot = p.config.RootDir
	}
	j.Change = c
	return j.save()
}

// commit records the change as done.
func (j *journal) commit(p *plan) error {
	done := &installed{
		Options: *p.options, Version: p.version, RootDir: p.config.RootDir,
		Originals: j.Change.Before, Folders: j.Change.Folders, Written: map[string]files.Entry{},
		Interface: p.options.dummyIf(p.config), PodServers: p.config.PodServers(), Transforms: p.config.Transforms,
	}
	if earlier := j.Installed; earlier != nil {
		maps.Copy(done.Originals, earlier.Originals) // what this change adds was not there
		done.Folders = slices.Concat(earlier.Folders, j.Change.Folders)
	}
	for _, f := range p.all {
		done.Written[f.path] = f.Entry
	}
	j.Installed, j.Change = done, nil
	if err := j.save(); err != nil {
		return err
	}
	j.prune()
	return nil
}

// apply writes the files and restarts the services. Kubelet's drop-in comes last: until the hub
// answers, kubelet is not affected if this program or the machine fails.
func (p *plan) apply(ctx context.Context, j *journal, out io.Writer) error {
	if p.sockets && !p.first {
		if _, err := systemctl.Run(ctx, "stop", hubService, hubSocket); err != nil {
			return err
		}
		if err := dummyif.Remove(ctx, p.oldIf); err != nil {
			return err
		}
	}
	if p.kubelet && !p.first {
		// A kubelet that starts by itself from here on may have a kubeconfig that the hub of before does not suit.
		if err := j.noteKubelet(); err != nil {
			return err
		}
	}
	if err := p.writeFiles(ctx, func(path string) bool { return !leadsKubelet(path) }); err != nil {
		return err
	}
	if p.restart {
		// The unit allows writing to this folder only; StateDirectory= creates just the default one.
		if err := os.MkdirAll(p.config.RootDir, 0o700); err != nil {
			return fmt.Errorf("make the hub's folder: %w", err)
		}
		if err := p.createPodCA(ctx, out); err != nil {
			return err
		}
		fmt.Fprintln(out, "starting the hub")
		if err := p.startHub(ctx); err != nil {
			return err
		}
	}
	if err := waitFor(ctx, p.options.Wait, "the node does not read itself through the hub", func(ctx context.Context) error {
		return p.readOwnNode(ctx)
	}); err != nil {
		return fmt.Errorf("%w%s", err, systemctl.Journal(context.WithoutCancel(ctx), hubService))
	}
	if err := p.checkReach(ctx, out); err != nil {
		return err
	}
	if !p.kubelet {
		return nil
	}
	if err := p.writeFiles(ctx, leadsKubelet); err != nil {
		return err
	}
	fmt.Fprintln(out, "restarting kubelet, and waiting until the node is Ready")
	return j.restartKubelet(ctx, p.cloud, p.options.NodeName, p.options.Wait, kubeletKubeconfig)
}

// writeFiles writes the changed files that are chosen, and reloads systemd.
func (p *plan) writeFiles(ctx context.Context, chosen func(path string) bool) error {
	for _, f := range p.changed {
		if !chosen(f.path) {
			continue
		}
		for _, dir := range files.MissingDirs(f.path) {
			if err := os.Mkdir(dir, 0o755); err != nil {
				return err
			}
		}
		if err := files.Write(f.path, f.Entry, f.content); err != nil {
			return fmt.Errorf("write %s: %w", f.path, err)
		}
	}
	_, err := systemctl.Run(ctx, "daemon-reload")
	return err
}

func (p *plan) startHub(ctx context.Context) error {
	if p.sockets {
		if _, err := systemctl.Run(ctx, "start", hubSocket); err != nil {
			return fmt.Errorf("%w%s%s", err, heldBy(ctx, sockets(p.config)...), systemctl.Journal(context.WithoutCancel(ctx), hubSocket))
		}
	}
	readyURL := "http://" + p.config.ServeAddress + api.Readyz
	if p.config.ServeClientCAFile != "" {
		readyURL = "" // the API requires a client certificate
	}
	return restartHub(ctx, p.options.Wait, readyURL)
}
