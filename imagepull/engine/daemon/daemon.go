// Package daemon finds out how the containerd that serves a socket was started: its environment and
// its configuration, which CRI pulls with. From 2.0 on, containerd's API tells neither.
//
// The socket shows which process listens. That must be a process named containerd, of root or of
// this program's user, so that no other user's environment or program is taken for containerd's.
// Its files are not checked: whoever can write them, or replace its program, is its user.
//
// Values are safe for concurrent use.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"golang.org/x/net/http/httpproxy"
)

// defaultFile is the configuration of a containerd that is started without --config.
const defaultFile = "/etc/containerd/config.toml"

// Process is a containerd that runs.
type Process struct {
	folder string   // /proc/PID
	start  string   // when it was started, in ticks since the machine was
	args   []string // its command line
}

// At returns the containerd that listens at a socket. It fails if another program does, as one that
// forwards, or if this program must not look into the process.
func At(ctx context.Context, socket string) (Process, error) {
	pid, err := listener(ctx, socket)
	if err != nil {
		return Process{}, err
	}
	p := Process{folder: fmt.Sprintf("/proc/%d", pid)}
	if p.args, err = p.strings("cmdline"); err != nil {
		return Process{}, err
	}
	if name := filepath.Base(p.args[0]); name != "containerd" {
		return Process{}, fmt.Errorf("process %d, which listens at %s, is %q and not containerd", pid, socket, name)
	}
	stat, err := os.ReadFile(filepath.Join(p.folder, "stat"))
	if err != nil {
		return Process{}, err
	}
	// proc(5): the process's name, in parentheses, is the second field, and its start the 22nd.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 {
		return Process{}, fmt.Errorf("%s/stat has %d fields", p.folder, len(fields))
	}
	p.start = fields[19]
	return p, nil
}

// ID differs between processes, also if one has the PID of an earlier one.
func (p Process) ID() string { return p.folder + " " + p.start }

// strings reads a file of strings that end with NUL. It returns at least one.
func (p Process) strings(file string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(p.folder, file))
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00"), err
}

// Proxy returns which proxy the process uses for a request, as its environment says.
func (p Process) Proxy() (func(*http.Request) (*url.URL, error), error) {
	variables, err := p.strings("environ")
	if err != nil {
		return nil, err
	}
	value := map[string]string{}
	for _, variable := range variables {
		if name, v, ok := strings.Cut(variable, "="); ok && value[name] == "" {
			value[name] = v
		}
	}
	either := func(name string) string {
		if v := value[name]; v != "" {
			return v
		}
		return value[strings.ToLower(name)]
	}
	c := httpproxy.Config{HTTPProxy: either("HTTP_PROXY"), HTTPSProxy: either("HTTPS_PROXY"), NoProxy: either("NO_PROXY")}
	choose := c.ProxyFunc()
	return func(r *http.Request) (*url.URL, error) { return choose(r.URL) }, nil
}

// Config decodes the process's configuration, in TOML, into a value: that of its files with their
// imports, in the form of the newest version that the process knows. It runs the process's program,
// with `config dump` behind its command line, since versions differ in how they merge files. So the
// files are read as they are now, which may not be how the process has read them.
func (p Process) Config(ctx context.Context, into any) error {
	file := configFile(p.args)
	if !filepath.IsAbs(file) {
		return fmt.Errorf("its --config %s is not an absolute path", file)
	}
	// A file that is not there counts as empty, so one that only this program does not see must not.
	if err := p.Sees(file); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(p.folder, "exe"), append(p.args[1:len(p.args):len(p.args)], "config", "dump")...)
	cmd.Args[0] = p.args[0] // some programs are containerd only by this name
	cmd.Env = []string{}
	text, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return fmt.Errorf("run %s config dump: %w", p.args[0], err)
	}
	var c struct {
		Imports []string `toml:"imports"`
	}
	if err := toml.Unmarshal(text, &c); err != nil {
		return fmt.Errorf("read what %s config dump says: %w", p.args[0], err)
	}
	for _, pattern := range c.Imports {
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(filepath.Dir(file), pattern)
		}
		if err := p.Sees(filepath.Dir(pattern)); err != nil {
			return err
		}
	}
	if err := toml.Unmarshal(text, into); err != nil {
		return fmt.Errorf("read what %s config dump says: %w", p.args[0], err)
	}
	return nil
}

// Sees fails if a path leads the process to another file than this program, or only one of them to a
// file: each may have mounts of its own.
func (p Process) Sees(path string) error {
	mine, err := os.Stat(path)
	theirs, theirErr := os.Stat(filepath.Join(p.folder, "root", path))
	switch {
	case errors.Is(err, os.ErrNotExist) && errors.Is(theirErr, os.ErrNotExist):
		return nil
	case theirErr != nil && !errors.Is(theirErr, os.ErrNotExist):
		return theirErr
	case err != nil || theirErr != nil || !os.SameFile(mine, theirs):
		return fmt.Errorf("containerd does not see the same %s as the hub, which does not see /home, /root and containerd's /tmp", path)
	}
	return nil
}

// configFile returns the file of --config, which containerd's command line may have in four forms.
func configFile(args []string) string {
	for i, arg := range args {
		name, value, given := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-"), "=")
		if arg[:min(1, len(arg))] != "-" || name != "config" && name != "c" {
			continue
		}
		if !given && i+1 < len(args) {
			value = args[i+1]
		}
		return value
	}
	return defaultFile
}
