package machine

// unitFolder is where the machine's own units are, and nothing else is looked for but
// /etc/systemd/system.
const unitFolder = "/usr/lib/test-units"

// journalUnits are systemd's own.
var journalUnits = []string{"systemd-journald.service", "systemd-journald.socket"}

// baseUnits are empty targets with the names that others refer to.
var baseUnits = map[string]string{
	"default.target":        "[Unit]\nRequires=multi-user.target\nAfter=multi-user.target\n",
	"multi-user.target":     "[Unit]\nRequires=basic.target\nAfter=basic.target\nAllowIsolate=yes\n",
	"basic.target":          "[Unit]\nRequires=sysinit.target\nWants=sockets.target\nAfter=sysinit.target sockets.target\n",
	"sockets.target":        "[Unit]\n",
	"sysinit.target":        "[Unit]\nWants=systemd-journald.service\nAfter=systemd-journald.service\n",
	"shutdown.target":       "[Unit]\nDefaultDependencies=no\n",
	"network-online.target": "[Unit]\n",
}
