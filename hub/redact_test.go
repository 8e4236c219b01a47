package hub

import (
	"encoding/base64"
	"strings"
	"testing"
)

// A password in a wrong place is a secret, too.
func TestErrorsOfKubeconfigsKeepSecrets(t *testing.T) {
	const secret = "PLANTED-b7d1"
	const rest = "\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n"
	file := func(cluster, user string) string {
		return "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {" + cluster + "}}]\nusers: [{name: u, user: {" + user + "}}]" + rest
	}
	const server = "server: 'https://127.0.0.1:6443'"
	tests := map[string]string{
		"a password in the server":                 file("server: 'https://u:"+secret+"@h:6443'", "token: t"),
		"a password in a server that is none":      file("server: 'https://u:"+secret+"@h h:6443'", "token: t"),
		"a token in the server's query":            file("server: 'https://h:6443/?token="+secret+"'", "token: t"),
		"a password in a server over HTTP":         file("server: 'http://u:"+secret+"@h'", "token: t"),
		"a password in a proxy that is none":       file(server+", proxy-url: 'http://u:"+secret+"@h h'", "token: t"),
		"a password in a proxy with a bad escape":  file(server+", proxy-url: 'http://u:"+secret+"%zz@h'", "token: t"),
		"a password in a proxy of no scheme":       file(server+", proxy-url: 'ftp://u:"+secret+"@h'", "token: t"),
		"a user name and a password":               file(server, "username: u, password: "+secret),
		"a token that is a YAML alias":             file(server, "token: *"+secret),
		"a token that is a list":                   file(server, "token: ["+secret+"]"),
		"a token that does not end":                file(server, "token: \""+secret),
		"a token and a missing context":            strings.Replace(file(server, "token: "+secret), "user: u}", "user: gone}", 1),
		"a key that is not base64":                 file(server, "client-certificate-data: eA==, client-key-data: '"+secret+"'"),
		"a key that is none":                       file(server, "client-certificate-data: eA==, client-key-data: "+base64.StdEncoding.EncodeToString([]byte(secret))),
		"a key where its path should be":           file(server, "client-certificate: x.crt, client-key: '-----BEGIN PRIVATE KEY----- "+secret+"'"),
		"a token file and a password":              file(server, "tokenFile: gone, password: "+secret+", username: u"),
		"a credential plugin's environment":        file(server, "exec: {command: x, env: [{name: A, value: "+secret+"}]}"),
		"an auth provider's configuration":         file(server, "auth-provider: {name: x, config: {access-token: "+secret+"}}"),
		"a certificate with a token in its place":  file(server, "client-certificate-data: "+secret+", client-key-data: eA=="),
		"a CA with a token in its place":           file(server+", certificate-authority-data: "+base64.StdEncoding.EncodeToString([]byte(secret)), "token: t"),
		"a token that is a number with a fraction": file(server, "token: 1.5, password: "+secret),
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, echoToken)
			n.write(t, "kubeconfig", []byte(text))
			_, err := n.hub()
			if err == nil {
				t.Fatal("it is taken")
			}
			if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), base64.StdEncoding.EncodeToString([]byte(secret))) {
				t.Errorf("says %v", err)
			}
		})
	}
}
