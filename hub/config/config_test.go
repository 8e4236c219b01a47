package config

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func configOf(t *testing.T, args ...string) (*Config, error) {
	t.Helper()
	o := NewOptions()
	fs := pflag.NewFlagSet("edgehub", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	o.AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return o.Config()
}

func TestDefaultsAreYurthubsButForThePlainPort(t *testing.T) {
	c, err := configOf(t, "--node-name=n1")
	if err != nil {
		t.Fatal(err)
	}
	got := []string{c.ProxyAddress, c.SecureAddress, c.ServeAddress, string(c.Balance)}
	want := []string{"", "127.0.0.1:10268", "127.0.0.1:10267", "rr"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestServerAddr(t *testing.T) {
	tests := map[string]struct{ flag, want string }{
		"one":                          {"https://10.0.0.1:6443", "https://10.0.0.1:6443"},
		"a list with blanks":           {"https://a:6443, https://b:6443 ,", "https://a:6443 https://b:6443"},
		"without scheme":               {"10.0.0.1:6443", "https://10.0.0.1:6443"},
		"without port":                 {"https://api.example.com", "https://api.example.com:443"},
		"a slash at the end":           {"https://a:6443/", "https://a:6443"},
		"IPv6":                         {"https://[fd00::1]:6443", "https://[fd00::1]:6443"},
		"none: the kubeconfig decides": {"", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := configOf(t, "--node-name=n1", "--server-addr="+tt.flag)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, u := range c.Servers {
				got = append(got, u.String())
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("got %v, want %s", got, tt.want)
			}
		})
	}
}

func TestBadFlagsAreNamed(t *testing.T) {
	tests := map[string]struct {
		args []string
		want []string // each in the error
	}{
		"no node name":                {nil, []string{"--node-name", "required"}},
		"a node name in capitals":     {[]string{"--node-name=Node_1"}, []string{"--node-name", "Node_1"}},
		"plain HTTP to the cloud":     {[]string{"--node-name=n", "--server-addr=http://a:8080"}, []string{"--server-addr", "https"}},
		"a path":                      {[]string{"--node-name=n", "--server-addr=https://a:6443/api"}, []string{"--server-addr", "HOST:PORT"}},
		"a port out of range":         {[]string{"--node-name=n", "--server-addr=https://a:66443"}, []string{"--server-addr", "66443"}},
		"the hub itself":              {[]string{"--node-name=n", "--server-addr=https://127.0.0.1:10268"}, []string{"--server-addr", "this hub itself"}},
		"the hub itself by name":      {[]string{"--node-name=n", "--server-addr=https://localhost:10268"}, []string{"--server-addr", "this hub itself"}},
		"caller-check":                {[]string{"--node-name=n", "--caller-check=yes"}, []string{"--caller-check", "auto, required and off"}},
		"no such user ID":             {[]string{"--node-name=n", "--node-identity-users=0,4294967295"}, []string{"--node-identity-users", "4294967295"}},
		"too few connections":         {[]string{"--node-name=n", "--max-connections=10"}, []string{"--max-connections", "64"}},
		"lb-mode":                     {[]string{"--node-name=n", "--lb-mode=random"}, []string{"--lb-mode", "random", "rr", "priority"}},
		"serve-port 0":                {[]string{"--node-name=n", "--serve-port=0"}, []string{"--serve-port", "0"}},
		"a port too high":             {[]string{"--node-name=n", "--proxy-port=70000"}, []string{"--proxy-port", "70000"}},
		"no proxy port at all":        {[]string{"--node-name=n", "--proxy-secure-port=0"}, []string{"--proxy-port", "--proxy-secure-port"}},
		"two on one port":             {[]string{"--node-name=n", "--proxy-port=10267"}, []string{"--serve-port", "127.0.0.1:10267"}},
		"a name to bind to":           {[]string{"--node-name=n", "--bind-address=localhost"}, []string{"--bind-address", "localhost"}},
		"the plain port for everyone": {[]string{"--node-name=n", "--bind-proxy-address=0.0.0.0", "--proxy-port=10261"}, []string{"--bind-proxy-address", "leave --proxy-port out"}},
		"the node's API for everyone": {[]string{"--node-name=n", "--bind-address=192.0.2.7"}, []string{"--bind-address", "192.0.2.7", "loopback"}},
		"half a key pair":             {[]string{"--node-name=n", "--tls-cert-file=a.crt"}, []string{"--tls-cert-file", "--tls-private-key-file"}},
		"a negative grace":            {[]string{"--node-name=n", "--shutdown-grace-period=-1s"}, []string{"--shutdown-grace-period", "-1s"}},
		"a loss at the first hiccup":  {[]string{"--node-name=n", "--upstream-loss-timeout=10ms"}, []string{"--upstream-loss-timeout", "10ms", "500ms"}},
		"probes without a pause":      {[]string{"--node-name=n", "--upstream-probe-interval=0s"}, []string{"--upstream-probe-interval", "100ms"}},
		"pings without a pause":       {[]string{"--node-name=n", "--upstream-idle-ping-interval=1ms"}, []string{"--upstream-idle-ping-interval", "1s"}},
		"no bad answer at all":        {[]string{"--node-name=n", "--upstream-bad-answers=0"}, []string{"--upstream-bad-answers", "0"}},
		"a negative jitter":           {[]string{"--node-name=n", "--reconnect-jitter=-1s"}, []string{"--reconnect-jitter", "-1s"}},
		"a cache for nothing":         {[]string{"--node-name=n", "--cache-max-bytes=1000"}, []string{"--cache-max-bytes", "1000", "1 MiB"}},
		"a negative TTL of reviews":   {[]string{"--node-name=n", "--offline-authorization-ttl=-1h"}, []string{"--offline-authorization-ttl", "-1h"}},
		"a negative token grace":      {[]string{"--node-name=n", "--offline-token-grace=-1h"}, []string{"--offline-token-grace", "-1h"}},
		"a negative count of events":  {[]string{"--node-name=n", "--event-spool-max-count=-1"}, []string{"--event-spool-max-count", "-1"}},
		"negative bytes of events":    {[]string{"--node-name=n", "--event-spool-max-bytes=-1"}, []string{"--event-spool-max-bytes", "-1"}},
		"a socket that is no path":    {[]string{"--node-name=n", "--container-runtime-endpoint=tcp://1.2.3.4"}, []string{"--container-runtime-endpoint", "tcp://1.2.3.4", "unix://"}},
		"no pull at a time":           {[]string{"--node-name=n", "--image-pull-parallelism=0"}, []string{"--image-pull-parallelism", "0"}},
		"a bandwidth in words":        {[]string{"--node-name=n", "--image-pull-bandwidth=fast"}, []string{"--image-pull-bandwidth", "fast", "500k"}},
		"a bandwidth of bits":         {[]string{"--node-name=n", "--image-pull-bandwidth=10"}, []string{"--image-pull-bandwidth", "10", "1000"}},
		"a negative bandwidth":        {[]string{"--node-name=n", "--image-pull-bandwidth=-1M"}, []string{"--image-pull-bandwidth", "-1M"}},
		"a disk that stays empty":     {[]string{"--node-name=n", "--image-pull-min-free=100"}, []string{"--image-pull-min-free", "100"}},
		"a pull before it is wanted":  {[]string{"--node-name=n", "--image-pull-jitter=-1s"}, []string{"--image-pull-jitter", "-1s"}},
		"a cluster IP that leads now": {[]string{"--node-name=n", "--cluster-ip=online"}, []string{"--cluster-ip", "online", "always"}},
		"a cluster IP to nowhere":     {[]string{"--node-name=n", "--cluster-ip=always"}, []string{"--cluster-ip", "--dummy-if-ip"}},
		"a cluster IP, and no CA": {
			[]string{"--node-name=n", "--cluster-ip=always", "--dummy-if-ip=169.254.2.1", "--transforms=kube-proxy", "--container-runtime-endpoint="},
			[]string{"--cluster-ip", "apiserver-service", "root-ca", "--container-runtime-endpoint"},
		},
		"a name for no pod":         {[]string{"--node-name=n", "--apiserver-names=a.b.svc"}, []string{"--apiserver-names", "--dummy-if-ip"}},
		"a name of the internet":    {[]string{"--node-name=n", "--dummy-if-ip=169.254.2.1", "--apiserver-names=www.example.com"}, []string{"--apiserver-names", "www.example.com", "SERVICE.NAMESPACE.svc"}},
		"every name of a domain":    {[]string{"--node-name=n", "--dummy-if-ip=169.254.2.1", "--apiserver-names=*.default.svc"}, []string{"--apiserver-names", "*.default.svc", "SERVICE.NAMESPACE.svc"}},
		"a name that is no Service": {[]string{"--node-name=n", "--dummy-if-ip=169.254.2.1", "--apiserver-names=kubernetes.svc"}, []string{"--apiserver-names", "kubernetes.svc"}},
		"several at once":           {[]string{"--lb-mode=x", "--kubeconfig=", "--root-dir="}, []string{"--node-name", "--lb-mode", "--kubeconfig", "--root-dir"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := configOf(t, tt.args...)
			if err == nil {
				t.Fatal("no error")
			}
			for _, word := range tt.want {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("error does not say %q:\n%v", word, err)
				}
			}
		})
	}
}

func TestBandwidth(t *testing.T) {
	for flag, want := range map[string]int64{"0": 0, "500k": 500_000, "2Mi": 2 << 20, "1500": 1500} {
		c, err := configOf(t, "--node-name=n", "--image-pull-bandwidth="+flag)
		if err != nil || c.PullRate != want {
			t.Errorf("%s: %d, %v; want %d", flag, c.PullRate, err, want)
		}
	}
}

func TestSecurePortAloneMayBeForEveryone(t *testing.T) {
	if _, err := configOf(t, "--node-name=n", "--bind-proxy-address=0.0.0.0"); err != nil {
		t.Error(err)
	}
}

func TestABadAddressIsReportedOnce(t *testing.T) {
	_, err := configOf(t, "--node-name=n", "--bind-proxy-address=nowhere")
	if err == nil || strings.Count(err.Error(), "nowhere") != 1 {
		t.Errorf("two ports share the flag; the error is\n%v", err)
	}
}

func TestAPIBeyondLoopbackNeedsClientCAs(t *testing.T) {
	if _, err := configOf(t, "--node-name=n", "--bind-address=192.0.2.7", "--serve-client-ca-file=ca.crt"); err != nil {
		t.Errorf("with --serve-client-ca-file: %v", err)
	}
	_, err := configOf(t, "--node-name=n", "--bind-address=192.0.2.7")
	if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "add --serve-client-ca-file=FILE") {
		t.Errorf("without: %v, want one line that says what to add", err)
	}
}

func TestErrorsOfServerAddrKeepSecrets(t *testing.T) {
	const secret = "PLANTED-b7d1"
	if _, err := configOf(t, "--node-name=n", "--server-addr=https://u:"+secret+"@h:1/?x="+secret); err == nil || strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), "@h:1") {
		t.Errorf("--server-addr: %v", err)
	}
}

func TestServiceAccountsOfFilters(t *testing.T) {
	for value, valid := range map[string]bool{"a/b": true, "a/b,c/d": true, "": true, "a": false, "/a": false, "a/": false, "a/b/c": false, "system:serviceaccount:a:b": false} {
		for _, flag := range []string{"--service-topology-accounts=", "--service-proxy-accounts="} {
			_, err := configOf(t, "--node-name=n1", flag+value)
			if valid != (err == nil) || err != nil && !strings.Contains(err.Error(), strings.Trim(flag, "-=")) {
				t.Errorf("%s%s: %v", flag, value, err)
			}
		}
	}
}
