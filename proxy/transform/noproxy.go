package transform

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpproxy"
	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/edgehub-io/edgehub/cache/wire"
)

// The variables that send requests to a proxy, and those that name what is reached without it. Programs
// read them in one case or the other.
var (
	proxyVariables   = []string{"HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy"}
	noProxyVariables = []string{"NO_PROXY", "no_proxy"}
)

// kubelets are programs that are kubelet, or have it within: k3s, and MicroK8s' kubelite. By client-go's
// User-Agent they are followed by their version, which is Kubernetes' own.
var kubelets = []string{"kubelet", "k3s", "kubelite"}

// kubeletOf returns the version of kubelet that has sent a request, and false if somebody else has.
func kubeletOf(h http.Header) (version string, ok bool) {
	program, text, _ := strings.Cut(h.Get("User-Agent"), "/")
	version, _, _ = strings.Cut(text, " ")
	return version, slices.Contains(kubelets, program)
}

// ProxyVariables returns the names of the variables that [UsesProxy] reads.
func ProxyVariables() []string { return slices.Concat(proxyVariables[:4], noProxyVariables) }

// UsesProxy reports whether a program with these variables reaches a TLS server through a proxy, as Go's
// programs read them, and ALL_PROXY as others do.
func UsesProxy(variables map[string]string, server netip.AddrPort) bool {
	first := func(names []string) (value string) {
		for _, name := range slices.Backward(names) {
			value = cmp.Or(variables[name], value)
		}
		return value
	}
	return first(proxyVariables[:4]) != "" && !covers(first(noProxyVariables), server)
}

// covers reports whether a NO_PROXY has a server reached without a proxy. One with port 0 is covered if
// its address is, at any port.
func covers(noProxy string, server netip.AddrPort) bool {
	choose := (&httpproxy.Config{HTTPSProxy: "http://proxy", NoProxy: noProxy}).ProxyFunc()
	proxy, err := choose(&url.URL{Scheme: "https", Host: server.String()})
	return err == nil && proxy == nil
}

// newNoProxy returns the transform of pods by which containers with a proxy in their own environment
// reach the hub without it.
func newNoProxy(hub []netip.Addr) Transform {
	return Transform{
		Name: APIServerService, Resource: "pods",
		reader: func(h http.Header) bool {
			version, ok := kubeletOf(h)
			return ok && KeepsContainers(version)
		},
		apply: func(o *object) (result, error) {
			if !bytes.Contains(o.bare, []byte("_PROXY")) && !bytes.Contains(o.bare, []byte("_proxy")) {
				return result{bare: o.bare}, nil
			}
			return o.editContainers(func(container string) (string, error) { return withNoProxy(o.encoding, container, hub) })
		},
	}
}

// KeepsContainers reports whether a kubelet of this version (v1.31.0, say) lets a container run whose
// variables are others than those it was started with. One before 1.31 compares a hash of all of the
// container's spec (k8s.io/kubernetes, pkg/kubelet/container, HashContainer): it would start running
// containers anew.
func KeepsContainers(kubelet string) bool {
	v, err := version.ParseGeneric(kubelet)
	return err == nil && v.AtLeast(version.MustParseGeneric("1.31"))
}

// editContainers edits each container of a pod, of all three kinds, in the pod's encoding.
func (o *object) editContainers(f func(string) (string, error)) (result, error) {
	var failed error
	out := result{bare: o.bare}
	edited := func(v value) value {
		text, err := f(v.text)
		if err != nil {
			failed = err
			return v
		}
		out.changed = out.changed || text != v.text
		return value{text: text}
	}
	const spec, containers, initContainers, ephemeralContainers, common = 2, 2, 20, 34, 1
	ephemeral := []step{{name: "spec", field: spec}, {name: "ephemeralContainers", field: ephemeralContainers, each: true, whole: true}}
	if o.encoding == wire.Protobuf {
		ephemeral = append(ephemeral, step{field: common}) // in JSON, its fields are the container's own
	}
	for _, path := range [][]step{
		{{name: "spec", field: spec}, {name: "containers", field: containers, each: true, whole: true}},
		{{name: "spec", field: spec}, {name: "initContainers", field: initContainers, each: true, whole: true}},
		ephemeral,
	} {
		var err error
		out.bare, err = edit(o.encoding, out.bare, path, edited)
		if err = cmp.Or(failed, err); err != nil {
			return result{}, fmt.Errorf("the variables of a container: %w", err)
		}
	}
	return out, nil
}

// The fields of a container that hold its variables.
var (
	envStep     = step{name: "env", field: 7, each: true, whole: true}
	envFromStep = step{name: "envFrom", field: 19, each: true, whole: true}
)

// withNoProxy returns a container, as it is encoded, with the variables of [WithoutProxy].
func withNoProxy(e wire.Encoding, container string, hub []netip.Addr) (string, error) {
	var c corev1.Container
	var failed error
	_, err := edit(e, []byte(container), []step{envStep}, func(v value) value {
		one, err := decodeVariable(e, v.text)
		c.Env, failed = append(c.Env, one), cmp.Or(failed, err)
		return v
	})
	if err = cmp.Or(failed, err); err != nil {
		return "", err
	}
	if _, err = edit(e, []byte(container), []step{envFromStep}, func(v value) value {
		c.EnvFrom = append(c.EnvFrom, corev1.EnvFromSource{})
		return v
	}); err != nil {
		return "", err
	}
	env, i := WithoutProxy(&c, hub), 0
	added := env[len(c.Env):]
	edited, err := edit(e, []byte(container), []step{envStep}, func(v value) value {
		if env[i].Value != c.Env[i].Value {
			v.text = encodeVariable(e, env[i])
		}
		if i++; i == len(c.Env) && e == wire.JSON {
			for _, one := range added {
				v.text += "," + encodeVariable(e, one)
			}
		}
		return v
	})
	if e == wire.Protobuf {
		for _, one := range added {
			edited = protowire.AppendString(protowire.AppendTag(edited, envStep.field, protowire.BytesType), encodeVariable(e, one))
		}
	}
	return string(edited), err
}

func decodeVariable(e wire.Encoding, text string) (v corev1.EnvVar, err error) {
	if e == wire.JSON {
		err = json.Unmarshal([]byte(text), &v)
	} else {
		err = v.Unmarshal([]byte(text))
	}
	return v, err
}

func encodeVariable(e wire.Encoding, v corev1.EnvVar) string {
	encode := v.Marshal
	if e == wire.JSON {
		encode = func() ([]byte, error) { return json.Marshal(v) }
	}
	text, _ := encode() // of two strings
	return string(text)
}

// WithoutProxy returns the variables of a container, with which it reaches the hub without a proxy: each
// NO_PROXY in its spec has the hub's addresses, unless it covers them already. A container with a
// proxy in its spec gets a NO_PROXY if none is there, nor may be: one that kubelet takes from a
// ConfigMap, a Secret or a field cannot be seen, and a variable in the spec would hide it.
func WithoutProxy(c *corev1.Container, hub []netip.Addr) []corev1.EnvVar {
	env, missing, proxy := slices.Clone(c.Env), len(c.EnvFrom) == 0, ""
	for i, v := range env {
		switch {
		case slices.Contains(noProxyVariables, v.Name) && v.ValueFrom != nil:
			return c.Env
		case slices.Contains(noProxyVariables, v.Name) && v.Value != "":
			env[i].Value, missing = withAddresses(v.Value, hub), false
		case slices.Contains(proxyVariables, v.Name) && v.Value != "":
			proxy = v.Name
		}
	}
	if missing && proxy != "" {
		name := noProxyVariables[0]
		if strings.ToLower(proxy) == proxy {
			name = noProxyVariables[1]
		}
		env = append(env, corev1.EnvVar{Name: name, Value: withAddresses("", hub)})
	}
	return env
}

// withAddresses returns a NO_PROXY that covers the addresses. One with a port is not enough: not all
// programs understand it, as Go's do.
func withAddresses(noProxy string, addresses []netip.Addr) string {
	for _, a := range addresses {
		switch {
		case covers(noProxy, netip.AddrPortFrom(a, 0)):
		case noProxy == "":
			noProxy = a.String()
		default:
			noProxy = strings.TrimSuffix(noProxy, ",") + "," + a.String()
		}
	}
	return noProxy
}
