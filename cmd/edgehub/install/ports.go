package install

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/edgehub-io/edgehub/cmd/edgehub/install/dummyif"
	"github.com/edgehub-io/edgehub/cmd/edgehub/install/systemctl"
)

// checkPorts checks that ports are free, or used by the sockets of the installed hub.
func (c *checks) checkPorts(ctx context.Context, p *plan, earlier *installed) {
	if !p.sockets {
		return
	}
	var held []string
	if earlier != nil && socketsAreOpen(ctx) {
		held = installedSockets()
	}
	var config net.ListenConfig
	for _, address := range sockets(p.config) {
		if slices.Contains(held, address) || slices.Contains(p.config.PodServers(), address) {
			continue
		}
		l, err := config.Listen(context.Background(), "tcp", address)
		if errors.Is(err, syscall.EADDRNOTAVAIL) && slices.Contains(p.config.PodServers(), address) {
			continue // the unit of the socket sets the address up: until then no program can use it
		}
		if err != nil {
			c.fail("%s is not free: %v%s", address, err, heldBy(ctx, address))
			continue
		}
		l.Close()
		c.ok("%s is free", address)
	}
	c.checkInterface(ctx, p, earlier)
}

// installedSockets are the addresses in the hub's unit for sockets.
func installedSockets() []string {
	content, _ := os.ReadFile(socketFile) // nothing is installed
	var all []string
	for line := range strings.Lines(string(content)) {
		if address, ok := strings.CutPrefix(strings.TrimSpace(line), "ListenStream="); ok {
			all = append(all, address)
		}
	}
	return all
}

// socketsAreOpen reports whether systemd has opened the installed hub's sockets. After a rollback
// another program may have their ports.
func socketsAreOpen(ctx context.Context) bool {
	values, err := systemctl.Properties(ctx, hubSocket, "ActiveState")
	return err == nil && values["ActiveState"] == "active"
}

// checkInterface checks that the addresses for pods can be set up. They are nobody's yet, so
// their ports are free.
func (c *checks) checkInterface(ctx context.Context, p *plan, earlier *installed) {
	name := p.options.dummyIf(p.config)
	if name == "" {
		return
	}
	notes, err := dummyif.Check(ctx, name, p.config.PodAddresses, earlier != nil && earlier.Interface == name)
	for _, note := range notes {
		c.warn("%s", note)
	}
	if err != nil {
		c.fail("the addresses for pods: %v", err)
		return
	}
	c.ok("pods will reach the hub at %s, of the interface %s", strings.Join(p.config.PodServers(), " and "), name)
}

// user is how ss names a process that has a socket: users:(("nc",pid=4711,fd=3)).
var user = regexp.MustCompile(`\("([^"]*)",pid=(\d+)`)

// heldBy returns the end of a message that names the programs which listen on the ports of these
// addresses, or "" if ss, of iproute2, shows none.
func heldBy(ctx context.Context, addresses ...string) string {
	var text strings.Builder
	for _, address := range addresses {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			continue
		}
		out, _ := exec.CommandContext(ctx, "ss", "-Hltnp", "sport = :"+port).Output()
		for line := range strings.Lines(string(out)) {
			for _, u := range user.FindAllStringSubmatch(line, -1) {
				const local = 3                                // field, after the state and two queues
				name := strings.Trim(strconv.Quote(u[1]), `"`) // any program chooses its own
				fmt.Fprintf(&text, "; process %s (%s) listens on %s", u[2], name, strings.Fields(line)[local])
			}
		}
	}
	return text.String()
}
