package install

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edgehub-io/edgehub/cmd/edgehub/install/files"
	"github.com/edgehub-io/edgehub/hub/config"
)

func TestInvalidOptionsAreRejected(t *testing.T) {
	for name, c := range map[string]struct {
		change func(o *Options)
		want   string
	}{
		"no time to wait": {func(o *Options) { o.Wait = 0 }, "--wait"},
		"a flag that an environment file would break": {func(o *Options) { o.Extra = []string{"--root-dir=/a b"} }, "spaces"},
	} {
		t.Run(name, func(t *testing.T) {
			o := NewOptions()
			c.change(o)
			if err := o.validate(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v does not say %q", err, c.want)
			}
		})
	}
	if err := NewOptions().validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
}

func TestAnUpgradeKeepsTheOptionsOfTheInstall(t *testing.T) {
	o := NewOptions()
	o.ServerAddr = "https://new.example.com"
	o.inherit(Options{NodeName: "edge1", ProxyPort: plainPort, ServerAddr: "https://old.example.com"}, func(name string) bool { return name == "server-addr" })
	if o.NodeName != "edge1" || o.ProxyPort != plainPort || o.ServerAddr != "https://new.example.com" {
		t.Errorf("%+v", o)
	}
}

func TestArgumentsThatAUnitWouldChangeAreRejected(t *testing.T) {
	for _, a := range []string{"--kubeconfig=/etc/a b", "--server-addr=x\nExecStartPre=/bin/sh", "--root-dir=/%h", "--kubeconfig=/a$B", `--kubeconfig=/a\b`, "--kubeconfig='/a'", "--x=\x00"} {
		if err := validateUnitArgs("--node-name=edge1", a); err == nil {
			t.Errorf("%q is taken for good", a)
		}
	}
	if err := validateUnitArgs("--server-addr=https://192.0.2.1:6443,https://[2001:db8::1]:6443", "--container-runtime-endpoint=unix:///run/containerd/containerd.sock"); err != nil {
		t.Error(err)
	}
	for _, c := range []config.Options{{Kubeconfig: "kubelet.conf"}, {RootDir: "/var/lib/a%n"}, {BootstrapFile: "./b"}, {TLSCertFile: "/etc/a: b"}} {
		if err := checkPaths(&config.Config{Options: c}); err == nil {
			t.Errorf("%+v is taken for good", c)
		}
	}
	if err := checkPaths(&config.Config{Options: config.Options{Kubeconfig: "/etc/kubernetes/kubelet.conf", RootDir: "/data/edgehub"}}); err != nil {
		t.Error(err)
	}
}

func TestFoldersWithForeignFilesAreRejected(t *testing.T) {
	root := t.TempDir()
	for _, name := range append(config.RootNames(), "lost+found") {
		if err := os.Mkdir(filepath.Join(root, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(checkRootDir(root), checkRootDir(filepath.Join(root, "new")), checkRootDir(filepath.Join(root, "cache"))); err != nil {
		t.Error(err)
	}
	if err := os.Mkdir(filepath.Join(root, "log"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := checkRootDir(root); err == nil || !strings.Contains(err.Error(), "log") {
		t.Errorf("a folder with others' things in it: %v", err)
	}
}

func TestWhoHoldsAPort(t *testing.T) {
	if _, err := exec.LookPath("ss"); err != nil {
		t.Skip("NOT RUN: who has a port: ss is not installed (Debian's package iproute2)")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	want := fmt.Sprintf("; process %d (install.test) listens on %s", os.Getpid(), l.Addr())
	if got := heldBy(t.Context(), "127.0.0.1:1", l.Addr().String()); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := heldBy(t.Context()); got != "" {
		t.Errorf("of no address: %q", got)
	}
}

func TestTheAdministratorsLinesStayInTheEnvironmentFile(t *testing.T) {
	for name, tt := range map[string]struct{ content, want string }{
		"other variables":    {"# mine\nEDGEHUB_ARGS=--v\nHTTPS_PROXY=http://p\n", "# mine\nEDGEHUB_ARGS=--a --b\nHTTPS_PROXY=http://p\n"},
		"no line with flags": {"HTTPS_PROXY=http://p", "HTTPS_PROXY=http://p\nEDGEHUB_ARGS=--a --b\n"},
		"two of them":        {"EDGEHUB_ARGS=--v\nEDGEHUB_ARGS=--w\nX=1\n", "EDGEHUB_ARGS=--a --b\nX=1\n"},
		"a comment":          {"#EDGEHUB_ARGS=--v\nEDGEHUB_ARGS=\n", "#EDGEHUB_ARGS=--v\nEDGEHUB_ARGS=--a --b\n"},
		"nothing":            {"", "EDGEHUB_ARGS=--a --b\n"},

		"flags on several lines":            {"EDGEHUB_ARGS=--v \\\n  --w \\\n  --x\nX=1\n", "EDGEHUB_ARGS=--a --b\nX=1\n"},
		"flags on a last line that goes on": {"X=1\nEDGEHUB_ARGS=--v \\\n", "X=1\nEDGEHUB_ARGS=--a --b\n"},
		"a value that looks like them":      {"X=1 \\\nEDGEHUB_ARGS=2\n", "X=1 \\\nEDGEHUB_ARGS=2\nEDGEHUB_ARGS=--a --b\n"},
		"a value that ends in a backslash":  {"X=1\\\\\nEDGEHUB_ARGS=--v\n", "X=1\\\\\nEDGEHUB_ARGS=--a --b\n"},
		"a last value that goes on":         {"X=1 \\", "X=1 \\\n\nEDGEHUB_ARGS=--a --b\n"},
		"a comment that ends in one":        {"# X \\\nEDGEHUB_ARGS=--v\n", "# X \\\nEDGEHUB_ARGS=--a --b\n"},
	} {
		if got := string(withArgs([]byte(tt.content), []string{"--a", "--b"})); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestTheHubGetsKubeletsProxy(t *testing.T) {
	proxy := []string{`HTTPS_PROXY=http://u:a"b\c@p`, "NO_PROXY=10.0.0.0/8"}
	for name, tt := range map[string]struct {
		content string
		proxy   []string
		want    string
		added   bool
	}{
		"none is named":        {"EDGEHUB_ARGS=\n", proxy, "EDGEHUB_ARGS=\nHTTPS_PROXY=\"http://u:a\\\"b\\\\c@p\"\nNO_PROXY=\"10.0.0.0/8\"\n", true},
		"kubelet has none":     {"EDGEHUB_ARGS=\n", nil, "EDGEHUB_ARGS=\n", false},
		"another is named":     {"HTTPS_PROXY=http://other\n", proxy, "HTTPS_PROXY=http://other\n", false},
		"it is to have none":   {"https_proxy=\n", proxy, "https_proxy=\n", false},
		"a last value goes on": {"X=1 \\\n", []string{"NO_PROXY=y"}, "X=1 \\\n\nNO_PROXY=\"y\"\n", true},
		"one in a comment":     {"# HTTPS_PROXY=x", []string{"NO_PROXY=y"}, "# HTTPS_PROXY=x\nNO_PROXY=\"y\"\n", true},
	} {
		if got, added := withProxy([]byte(tt.content), tt.proxy); string(got) != tt.want || added != tt.added {
			t.Errorf("%s: %q, %v; want %q", name, got, added, tt.want)
		}
	}
}

func TestTheEnvironmentFileStaysAsReadableAsItIs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "edgehub.env")
	mode := func(proxy bool) os.FileMode {
		t.Helper()
		e, err := environmentEntry(path, []byte("X=1\n"), proxy)
		if err != nil || e.Sum != files.Sum([]byte("X=1\n")) {
			t.Fatal(e, err)
		}
		return e.Mode
	}
	if got := [2]os.FileMode{mode(false), mode(true)}; got != [2]os.FileMode{0o644, 0o600} {
		t.Errorf("a new one has the modes %v", got)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := mode(false); got != 0o600 {
		t.Errorf("one that others could not read gets mode %v", got)
	}
}

func TestInstallReachesTheCloudAsTheHubWill(t *testing.T) {
	for _, name := range []string{"HTTPS_PROXY", "NO_PROXY", "HTTP_PROXY"} {
		t.Setenv(name, "") // puts it back in the end
		os.Unsetenv(name)
	}
	t.Setenv("HTTP_PROXY", "http://mine")
	content, _ := withProxy([]byte("# x\n"), []string{`HTTPS_PROXY=http://u:a"b\c@p`, "HTTP_PROXY=http://kubelets"})
	if got := withoutValues(content); got != "# x\nHTTPS_PROXY=…\nHTTP_PROXY=…\n" {
		t.Errorf("people are shown %q", got)
	}
	if got := withoutValues([]byte("HTTPS_PROXY=http://u:\\\nsecret@p\nX=1\n")); got != "HTTPS_PROXY=…\nX=1\n" {
		t.Errorf("people are shown %q of a value on two lines", got)
	}
	useProxy(content, nil)
	if got := os.Getenv("HTTPS_PROXY") + " " + os.Getenv("HTTP_PROXY"); got != `http://u:a"b\c@p http://mine` {
		t.Errorf("it uses %s", got)
	}
	useProxy(nil, []string{"NO_PROXY=10.0.0.0/8"})
	if got := os.Getenv("NO_PROXY"); got != "10.0.0.0/8" {
		t.Errorf("without a file it uses %q", got)
	}
}
