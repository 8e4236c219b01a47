package install

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/test/install/machine"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// TestNode is the life of one node with a hub, from the first look to the last trace.
// Each part begins where the one before has ended.
func TestNode(t *testing.T) {
	machine.Need(t, "install, upgrade and uninstall on a machine with systemd")
	n := newNode(t)
	hub, pod, before := n.build(false), n.startPod(), n.tree()
	parts := []struct {
		name string
		run  func(n *node)
	}{
		{"a dry run changes nothing", func(n *node) {
			out := n.must(hub, "install", "--dry-run")
			n.contains(out, "write    "+"/etc/systemd/system/edgehub.service", "systemctl restart kubelet.service", "nothing was changed")
			n.unchanged(before, filepath.Dir(hub))
		}},
		{"an install whose hub ends at once is put back", func(n *node) {
			out, err := n.edgehub(hub, "install", "--", "--cache-encryption-key-file=/nowhere")
			n.fails(err, "everything was put back as it was")
			n.contains(out, "ended by itself", "/nowhere")
			n.unchanged(before)
			n.hasInterface(false)
		}},
		{"an install whose node does not come back is put back", func(n *node) { n.losesTheCloud(hub); n.unchanged(before); n.lives(pod) }},
		{"an install that is interrupted is put back", func(n *node) {
			out, err := n.signalled(syscall.SIGINT, "starting the hub", hub, "install", "--binary="+n.script("exec sleep 1000"))
			n.fails(err, "exit status")
			n.contains(out, "everything was put back as it was")
			n.unchanged(before)
		}},
		{"an install leaves the node Ready behind its hub, and its pods alone", func(n *node) {
			n.contains(n.must(hub, "install"), "done: node "+nodeName)
			n.behindHub()
			n.lives(pod)
			poll.Check(n.t.Context(), n.t, "the pod is the same", func(ctx context.Context) error {
				now, err := n.container(ctx)
				if err == nil && now != pod {
					err = fmt.Errorf("it is %s", now)
				}
				return err
			})
			n.contains(n.must(hub, "install"), "nothing was changed")
		}},
		{"without the cloud the pod lives, and kubelet can be restarted", func(n *node) { n.survivesOutage(pod) }},
		{"an upgrade is not noticed by pods", func(n *node) {
			l := n.startLoad()
			l.goesOn()
			n.must(n.build(true), "install")
			l.goesOn()
			l.end()
			n.lives(pod)
		}},
		{"an upgrade to a hub that ends at once is put back", func(n *node) { n.upgradeFails("exit 1", "ended by itself") }},
		{"an upgrade to a hub that hangs is put back", func(n *node) {
			n.upgradeFails("exec sleep 1000", "does not become ready", "--wait=4s") // it never is; what is put back has longer
		}},
		{"a hub that hangs is started anew", func(n *node) { n.watchdog() }},
		{"uninstall refuses to lose somebody's change", func(n *node) {
			unit := "/etc/systemd/system/edgehub.service"
			text := string(n.read(n.Path(unit)))
			n.rewrite(unit, text+"# mine\n")
			out, err := n.edgehub(hub, "uninstall")
			n.fails(err, "nothing was changed")
			n.contains(out, unit+" was changed since edgehub wrote it")
			n.rewrite(unit, text)
		}},
		{"uninstall refuses while a pod may run what the cloud does not have", func(n *node) {
			record := "/var/lib/edgehub/upgrades/inplace/shop_1.json.damaged"
			n.rewrite(record, "{")
			out, err := n.edgehub(hub, "uninstall", "--force", "--purge")
			n.fails(err, "nothing was changed")
			n.contains(out, "shop_1.json.damaged is damaged")
			if err := os.Remove(n.Path(record)); err != nil {
				n.t.Fatal(err)
			}
		}},
		{"uninstall after a kill in the middle of an upgrade leaves everything as it was", func(n *node) {
			_, err := n.signalled(syscall.SIGKILL, "starting the hub", hub, "install", "--binary="+n.script("exec sleep 1000"))
			n.fails(err, "")
			release := n.holdsImage()
			n.contains(n.must(hub, "uninstall", "--purge"), "an earlier install was broken off", "done: the node lives on its own")
			release()
			n.unchanged(before)
			n.awaitReady()
			n.lives(pod)
		}},
		{"a hub with a certificate of its own, and with the plain port", func(n *node) {
			hidden, err := n.edgehub(hub, "install", "--bootstrap-file="+n.script("exit 1"))
			n.fails(err, "nothing was changed")
			n.contains(hidden, "the hub sees nothing of /root/")
			n.must(hub, "install", "--bootstrap-file="+n.bootstrapFile())
			n.behindHub()
			n.wasBootstrapped()
			n.opens("127.0.0.1:10261", false)
			n.must(n.build(true), "install") // what was chosen stays
			n.behindHub()
			n.must(hub, "install", "--proxy-port=10261") // other sockets
			n.behindHub()
			n.opens("127.0.0.1:10261", true)
		}},
		{"a squatter on the hub's ports hears nothing of kubelet", func(n *node) {
			n.losesItsPorts(hub, pod, "--proxy-port=0")
			n.opens("127.0.0.1:10261", false)
		}},
		{"an uninstall puts everything back", func(n *node) {
			release := n.holdsImage()
			n.must(hub, "uninstall")
			release()
			n.unchanged(before, "/var/lib/edgehub")
			n.awaitReady()
			n.lives(pod)
		}},
	}
	for _, part := range parts {
		began := time.Now()
		if !t.Run(part.name, func(t *testing.T) { m := *n; m.t = t; part.run(&m); n.version = m.version }) {
			return
		}
		t.Logf("%v: %s", time.Since(began).Round(time.Millisecond), part.name)
	}
}

func (n *node) contains(text string, words ...string) {
	n.t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			n.t.Errorf("%q is not in what it said:\n%s", word, text)
		}
	}
}

func (n *node) fails(err error, with string) {
	n.t.Helper()
	if err == nil || !strings.Contains(err.Error(), with) {
		n.t.Fatalf("it ended with %v, and not with %q", err, with)
	}
}

func (n *node) rewrite(path, content string) {
	n.t.Helper()
	if err := os.WriteFile(n.Path(path), []byte(content), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

// script is a program that is no hub.
func (n *node) script(line string) string {
	n.t.Helper()
	n.write("/root/script", "#!/bin/sh\n"+line+"\n")
	return "/root/script"
}

// follow runs edgehub and calls said with each line that it prints.
func (n *node) follow(said func(line string, process int), args ...string) (string, error) {
	n.t.Helper()
	cmd := n.Command(n.t.Context(), args...)
	reader, writer := io.Pipe()
	cmd.Stdout, cmd.Stderr = writer, writer
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	ended := make(chan error, 1) // one result
	go func() {
		err := cmd.Wait()
		writer.Close()
		ended <- err
	}()
	var text strings.Builder
	for lines := bufio.NewScanner(reader); lines.Scan(); {
		text.WriteString(lines.Text() + "\n")
		said(lines.Text(), cmd.Process.Pid)
	}
	err := <-ended
	n.t.Logf("%s: %v\n%s", strings.Join(args, " "), err, text.String())
	return text.String(), err
}

// signalled sends a signal to edgehub when it prints a line.
func (n *node) signalled(s syscall.Signal, at string, args ...string) (string, error) {
	n.t.Helper()
	return n.follow(func(line string, process int) {
		if line != at {
			return
		}
		// What it does next is to wait for a hub that never is ready.
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", process, process))
		if err != nil {
			n.t.Error(err)
		}
		child, err := strconv.Atoi(strings.TrimSpace(string(children)))
		if err != nil {
			n.t.Error(err)
			return
		}
		_ = syscall.Kill(child, s)
	}, args...)
}

// losesTheCloud takes the cloud away while kubelet is restarted, until everything is put back. It
// does not matter how long that is, but the hub has the same time to become ready before.
func (n *node) losesTheCloud(hub string) {
	n.t.Helper()
	out, err := n.follow(func(line string, _ int) {
		switch {
		case strings.HasPrefix(line, "restarting kubelet, "):
			_ = n.link.Refuse()
			n.link.Reset()
		case strings.HasPrefix(line, "putting everything back"):
			_ = n.link.Up()
		}
	}, hub, "install", "--wait=1m")
	n.fails(err, "exit status 1")
	n.contains(out, "does not become Ready", "everything was put back as it was")
	n.awaitReady()
}

// behindHub fails the test unless kubelet talks to the hub, over TLS, and to nobody else.
func (n *node) behindHub() {
	n.t.Helper()
	n.awaitReady()
	n.contains(string(n.read(n.Path("/etc/kubernetes/edgehub-kubelet.conf"))), "server: https://127.0.0.1:10268", "certificate-authority: /var/lib/edgehub/pki/serving.crt")
	n.contains(n.kubeletCommand(), "--kubeconfig=/etc/kubernetes/edgehub-kubelet.conf")
	n.contains(n.systemctl("show", "kubelet.service", "--property=After"), "edgehub.service")
	n.contains(n.systemctl("is-enabled", "edgehub.service", "edgehub.socket"), "enabled\nenabled")
	n.saysItIs("online")
}

// kubeletCommand is the command line of the kubelet that runs.
func (n *node) kubeletCommand() string {
	n.t.Helper()
	pid := n.systemctl("show", "kubelet.service", "--property=MainPID", "--value")
	line, err := n.Run(n.t.Context(), "cat", "/proc/"+pid+"/cmdline")
	if err != nil {
		n.t.Fatal(err)
	}
	return line
}

func (n *node) opens(address string, want bool) {
	n.t.Helper()
	conn, err := n.Dial(n.t.Context(), "tcp", address)
	if err == nil {
		conn.Close()
	}
	if (err == nil) != want {
		n.t.Errorf("port %s: %v", address, err)
	}
}

// saysItIs waits until the hub's status line in systemd begins with a word.
func (n *node) saysItIs(word string) {
	n.t.Helper()
	poll.Check(n.t.Context(), n.t, "systemd shows that the hub is "+word, func(context.Context) error {
		if text := n.systemctl("show", "edgehub.service", "--property=StatusText", "--value"); !strings.HasPrefix(text, word) {
			return errors.New(text)
		}
		return nil
	})
}

func (n *node) survivesOutage(pod string) {
	n.t.Helper()
	if err := n.link.Refuse(); err != nil {
		n.t.Fatal(err)
	}
	n.link.Reset()
	n.saysItIs("offline since")
	// As after a boot: kubelet's start brings the hub up before it.
	n.systemctl("stop", "kubelet.service", "edgehub.service", "edgehub.socket")
	n.systemctl("start", "kubelet.service")
	n.saysItIs("offline since")
	client := &http.Client{Transport: &http.Transport{DialContext: n.Dial, DisableKeepAlives: true}}
	poll.Check(n.t.Context(), n.t, "kubelet is well", func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:10248/healthz", http.NoBody)
		if err != nil {
			return err
		}
		res, err := client.Do(req)
		if err == nil {
			res.Body.Close()
		}
		return err
	})
	n.lives(pod)
	if err := n.link.Up(); err != nil {
		n.t.Fatal(err)
	}
	n.saysItIs("online")
	n.awaitReady()
	n.lives(pod)
}

// upgradeFails installs a program that is no hub in place of the one that runs.
func (n *node) upgradeFails(line, word string, args ...string) {
	n.t.Helper()
	installed := n.tree()
	args = append([]string{"install", "--binary=" + n.script(line)}, args...)
	out, err := n.edgehub("/usr/local/bin/edgehub", args...)
	n.fails(err, "everything was put back as it was")
	n.contains(out, word, "the end of the journal of edgehub.service")
	n.unchanged(installed)
	n.behindHub()
}

// watchdog is as installed: a shorter one could end a hub that is only slow.
func (n *node) watchdog() {
	n.t.Helper()
	show := func(properties string) string {
		return n.systemctl("show", "edgehub.service", "--property="+properties, "--value")
	}
	// Until one of its signs of life came, systemd shows when the hub was started.
	pid, signs := show("MainPID"), map[string]bool{}
	poll.Check(n.t.Context(), n.t, "the hub gives signs of life", func(context.Context) error {
		signs[show("WatchdogTimestampMonotonic")] = true
		if len(signs) < 3 {
			return fmt.Errorf("there were %v", signs)
		}
		return nil
	})
	if now := show("MainPID"); now != pid {
		n.t.Errorf("a hub that is well was started anew: process %s is %s", pid, now)
	}
	if _, err := n.Run(n.t.Context(), "sh", "-c", "kill -STOP "+pid); err != nil {
		n.t.Fatal(err)
	}
	poll.Check(n.t.Context(), n.t, "another process serves", func(context.Context) error {
		state := show("MainPID,ActiveState")
		if strings.Contains(state, pid) || !strings.Contains(state, "\nactive") && !strings.HasPrefix(state, "active") {
			return errors.New(state)
		}
		return nil
	})
}
