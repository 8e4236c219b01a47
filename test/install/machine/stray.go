package machine

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/edgehub-io/edgehub/test/cluster"
)

// RemoveStray ends what runs in machines whose program was killed, and removes their
// control groups and the host's ends of their wires. It calls found with the kind and the
// name of each thing before. Of a machine whose program lives nothing is touched; running
// has the names of those.
func RemoveStray(ctx context.Context, found func(kind, name string)) (running []string, err error) {
	machines, err := traces(ctx)
	var errs []error
	for name, groups := range machines {
		unlock, holder, err := cluster.TryClaim(ctx, lockName(name), "(a program that removes what machines have left)")
		switch {
		case holder != "" && err == nil:
			running = append(running, name+" in "+holder)
		case err != nil:
			errs = append(errs, err)
		default:
			m := &Machine{options: Options{Name: name}}
			for _, group := range groups {
				errs = append(errs, cluster.ListGroup(group, found))
			}
			if m.wired() {
				found("interface", m.hostEnd())
			}
			errs = append(errs, m.unwire(), removeGroups(name), unlock())
		}
	}
	return running, errors.Join(append(errs, err)...)
}

// traces are the control groups of each machine that has left any, or a wire.
func traces(ctx context.Context) (map[string][]string, error) {
	hierarchies, err := Hierarchies()
	if err != nil {
		return nil, err
	}
	all := map[string][]string{}
	for _, h := range hierarchies {
		groups, err := filepath.Glob(filepath.Join(h.Path, groupPrefix+"*"))
		if err != nil {
			return nil, err
		}
		for _, group := range groups {
			if name := strings.TrimPrefix(filepath.Base(group), groupPrefix); !strings.Contains(name, ".") { // a slice of systemd's has a dot
				all[name] = append(all[name], group)
			}
		}
	}
	out, err := exec.CommandContext(ctx, "ip", "-oneline", "link", "show", "type", "veth").Output()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		fields := strings.Fields(lines.Text()) // 5: edgehub-machine@if2: <…
		if len(fields) < 2 {
			continue
		}
		name, _, _ := strings.Cut(strings.TrimSuffix(fields[1], ":"), "@")
		if name, ok := strings.CutPrefix(name, wirePrefix); ok {
			all[name] = append(all[name], nil...)
		}
	}
	return all, nil
}
