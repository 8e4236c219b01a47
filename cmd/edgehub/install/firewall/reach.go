// Package firewall is about a node's firewall, and the addresses at which the node's pods reach the hub.
//
// A pod's packets to a ClusterIP are forwarded. Those to an address of the node itself, as the hub's
// is, are input, which many firewalls reject unless it was asked for (RHEL's rules, firewalld, ufw).
// [Reach] connects from network namespaces of pods, before kubelet leads any pod to the hub. Its
// error names the rule that is probably the cause, and the commands that accept these connections, from
// the node's own pods alone. Nothing here changes the firewall.
package firewall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// tries, dialTimeout and pause bound how long one address is tried. The first SYN that is lost is
// repeated by the kernel after 1 s, and a firewall or kube-proxy may be writing its rules anew.
const (
	tries       = 3
	dialTimeout = 3 * time.Second
	pause       = 500 * time.Millisecond
)

// network is a network namespace from which connections are tried.
type network struct {
	name string
	ns   *os.File
}

// Ask returns nil if the hub answers on a connection, which Ask neither closes nor keeps.
type Ask func(ctx context.Context, conn net.Conn) error

// answerError is that of Ask on a connection that was opened.
type answerError struct{ error }

// Reach returns nil if the servers, which must be listening, answer ask from the network
// namespaces of pods, or from one made for this if no pod runs that has its own. It prints to out what
// it tried. A pod that does not get through while others do is the matter of its own network, such as a
// NetworkPolicy or a service mesh, and printed only. podCIDRs are those of the Node, if it has any.
func Reach(ctx context.Context, servers []netip.AddrPort, ask Ask, podCIDRs []string, out io.Writer) error {
	for _, server := range servers {
		if err := retry(ctx, func() error { return dial(ctx, server, ask) }); err != nil {
			return fmt.Errorf("the node itself does not reach the hub at %s: %w", server, err)
		}
	}
	networks := podNetworks()
	if len(networks) == 0 {
		made, remove, err := makeNetwork(ctx, servers, podCIDRs)
		if err != nil {
			return fmt.Errorf("try whether pods reach the hub, from a network namespace like a pod's: %w", err)
		}
		defer remove()
		networks = append(networks, made)
	}
	defer func() {
		for _, n := range networks {
			n.ns.Close()
		}
	}()
	var errs []error
	var all []refused
	for _, server := range servers {
		err := reachFrom(ctx, networks, server, ask, out)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		errs = append(errs, err)
		if _, connected := errors.AsType[*answerError](err); err != nil && !connected { // a rule has refused it
			all = append(all, refused{server, podRange(ctx, networks, server, podCIDRs)})
		}
	}
	err := errors.Join(errs...)
	if len(all) > 0 {
		return fmt.Errorf("%w%s", err, wayOut(ctx, all, "/"))
	}
	return err
}

// podRange returns the node's range of pods' addresses, if a pod that was tried has one of these: some CNI plugins give
// out others.
func podRange(ctx context.Context, networks []network, server netip.AddrPort, podCIDRs []string) string {
	cidr, ok := podCIDR(server.Addr(), podCIDRs)
	if ok && slices.ContainsFunc(networks, func(n network) bool { return cidr.Contains(n.addressFor(ctx, server)) }) {
		return cidr.String()
	}
	return unknownPods
}

// reachFrom tries one server from all networks, and fails if none gets through: with an answerError if all were
// connected.
func reachFrom(ctx context.Context, networks []network, server netip.AddrPort, ask Ask, out io.Writer) error {
	errs := make([]error, len(networks))
	var wg sync.WaitGroup
	for i, n := range networks {
		wg.Go(func() { errs[i] = n.connect(ctx, server, ask) })
	}
	wg.Wait()
	var reached, failed []string
	connected := true
	for i, n := range networks {
		if errs[i] == nil {
			reached = append(reached, n.name)
		} else {
			failed = append(failed, n.name+": "+outcome(errs[i]))
			_, answer := errors.AsType[*answerError](errs[i])
			connected = connected && answer
		}
	}
	if len(reached) == 0 {
		err := fmt.Errorf("pods do not reach the hub at %s, as tried from %s", server, strings.Join(failed, "; "))
		if connected {
			err = &answerError{err}
		}
		return err
	}
	fmt.Fprintf(out, "pods reach the hub at %s, as tried from %s\n", server, strings.Join(reached, ", "))
	for _, f := range failed {
		fmt.Fprintf(out, "not from %s; a rule, NetworkPolicy or service mesh for this pod alone\n", f)
	}
	return nil
}

// connect tries a few times to have the server answer.
func (n *network) connect(ctx context.Context, server netip.AddrPort, ask Ask) error {
	return retry(ctx, func() error {
		var dialErr error
		return errors.Join(inside(n.ns, func() { dialErr = dial(ctx, server, ask) }), dialErr)
	})
}

// addressFor returns the address from which the network sends to a server, or the zero Addr.
func (n *network) addressFor(ctx context.Context, server netip.AddrPort) (own netip.Addr) {
	_ = inside(n.ns, func() {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "udp", server.String()) // which sends nothing
		if err == nil {
			own = conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr()
			conn.Close()
		}
	})
	return own
}

// retry calls try a few times, until it returns nil.
func retry(ctx context.Context, try func() error) error {
	var err error
	for i := range tries {
		if i > 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(pause):
			}
		}
		if err = try(); err == nil {
			return nil
		}
	}
	return err
}

// dial connects, and asks: whoever takes a connection may be another than the hub.
func dial(ctx context.Context, server netip.AddrPort, ask Ask) error {
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", server.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if err := ask(ctx, conn); err != nil {
		return &answerError{err}
	}
	return nil
}

// inside calls f in a network namespace: sockets and programs that f opens and starts are there.
func inside(ns *os.File, f func()) error {
	done := make(chan error, 1) // one send
	go func() {
		runtime.LockOSThread() // for good: the thread is in the other network, and ends with this goroutine
		err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			f()
		}
		done <- err
	}()
	return <-done
}

// outcome says what an error of connect means for a server that listens: nobody but a firewall, or
// the network of the pod, is left as the reason.
func outcome(err error) string {
	var netErr net.Error
	if answer, ok := errors.AsType[*answerError](err); ok {
		return fmt.Sprintf("connected, but not to the hub (%v): another program takes the connection, such as the sidecar of a service mesh", answer.error)
	}
	switch {
	case errors.Is(err, unix.ECONNREFUSED): // by a TCP reset, or ICMP's port-unreachable
		return "connection refused, though the hub listens: a rule rejects it"
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EACCES): // the last: ICMPv6's admin-prohibited
		return "no route to host: a rule rejects it, or the pod has no route to the node"
	case errors.As(err, &netErr) && netErr.Timeout():
		return fmt.Sprintf("no answer within %v: a rule drops it", dialTimeout)
	}
	return err.Error()
}
