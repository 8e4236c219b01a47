package daemon

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const socketVariable = "TEST_SOCKET"

// TestMain is also a containerd that does nothing: under that name, it listens, or prints its
// configuration.
func TestMain(m *testing.M) {
	if os.Args[0] != "containerd" && os.Args[0] != "other" {
		os.Exit(m.Run())
	}
	if os.Args[len(os.Args)-1] == "dump" {
		text, err := os.ReadFile(configFile(os.Args))
		if err != nil || len(os.Environ()) > 0 {
			fmt.Fprintln(os.Stderr, err, os.Environ())
			os.Exit(1)
		}
		fmt.Print(string(text))
		os.Exit(0)
	}
	_, err := net.Listen("unix", os.Getenv(socketVariable))
	fmt.Println(err)
	time.Sleep(time.Hour) // not select {}: without cgo, the runtime ends a process in which nothing can happen
}

// start starts a process that listens at a socket, and returns the socket.
func start(t *testing.T, change func(*exec.Cmd)) string {
	t.Helper()
	socket := "@edgehub-" + strings.ReplaceAll(t.Name(), "/", "-")
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Args, cmd.Env = []string{"containerd"}, []string{socketVariable + "=" + socket}
	change(cmd)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "<nil>\n" {
		t.Fatal(line, err)
	}
	return socket
}

func TestTheProxyIsThatOfTheProcess(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://the-hubs.example")
	socket := start(t, func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, "https_proxy=http://user:pass@proxy.example:3128", "NO_PROXY=.inside.example,10.0.0.0/8")
	})
	p, err := At(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := p.Proxy()
	if err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]string{
		"https://registry.example/v2/": "proxy.example:3128", "http://registry.example/v2/": "",
		"https://a.inside.example/v2/": "", "https://10.1.2.3/v2/": "",
	} {
		r, _ := http.NewRequest(http.MethodGet, url, nil)
		got, err := proxy(r)
		if err != nil || got == nil && want != "" || got != nil && got.Host != want {
			t.Errorf("%s is sent to %v, not to %q (%v)", url, got, want, err)
		}
	}
}

func TestTheConfigurationIsWhatTheProgramSays(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.toml")
	socket := start(t, func(cmd *exec.Cmd) { cmd.Args = append(cmd.Args, "--log-level", "info", "--config="+file) })
	for text, want := range map[string]string{
		"root = '/somewhere'\nimports = ['*.toml', '/etc/nowhere/*.toml']": "/somewhere", "root = 1": "", "root": "",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := At(t.Context(), socket)
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Root string `toml:"root"`
		}
		if err := p.Config(t.Context(), &got); got.Root != want || (err == nil) != (want != "") {
			t.Errorf("%q is read as %+v, %v", text, got, err)
		}
	}
}

func TestOnlyContainerdIsLookedInto(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*exec.Cmd)
		want   string
	}{
		"another program listens": {func(cmd *exec.Cmd) { cmd.Args[0] = "other" }, `is "other" and not containerd`},
		"another user's program, of the same name": {func(cmd *exec.Cmd) {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}, "not root's"},
	} {
		t.Run(name, func(t *testing.T) {
			if os.Geteuid() != 0 && tt.want == "not root's" {
				t.Skip("it takes root to start another user's program")
			}
			if p, err := At(t.Context(), start(t, tt.change)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%+v, %v", p, err)
			}
		})
	}
}

func TestConfigFile(t *testing.T) {
	for args, want := range map[string]string{
		"containerd":                          "/etc/containerd/config.toml",
		"containerd -c /a":                    "/a",
		"containerd --config /a":              "/a",
		"containerd -l debug --config=/a":     "/a",
		"containerd --log-level info -c=/a":   "/a",
		"containerd --state /c --root config": "/etc/containerd/config.toml",
	} {
		if got := configFile(strings.Fields(args)); got != want {
			t.Errorf("%q: %s", args, got)
		}
	}
	if got := configFile([]string{"containerd", "", "-"}); got != defaultFile {
		t.Error(got)
	}
}
