package install

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

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
