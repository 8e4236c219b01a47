// Command bare is httputil.ReverseProxy and nothing else: what a hub is
// measured beside. It talks HTTP/2 to the apiserver, as the hub does.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"

	"github.com/spf13/pflag"
)

func main() {
	listen := pflag.String("listen", "", "address to serve on")
	server := pflag.String("server", "", "URL of the apiserver")
	ca := pflag.String("ca", "", "CA of the apiserver")
	cert := pflag.String("cert", "", "client certificate")
	key := pflag.String("key", "", "client key")
	overTLS := pflag.Bool("tls", false, "serve over TLS, with the client certificate")
	pflag.Parse()
	log.Fatal(serve(*listen, *server, *ca, *cert, *key, *overTLS))
}

func serve(listen, server, ca, cert, key string, overTLS bool) error {
	target, err := url.Parse(server)
	if err != nil {
		return err
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.FlushInterval = -1
	proxy.Transport = &http.Transport{
		TLSClientConfig:    &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}},
		ForceAttemptHTTP2:  true,
		DisableCompression: true, // or it would ask for gzip by itself, and undo it
	}
	if overTLS {
		return http.ListenAndServeTLS(listen, cert, key, proxy)
	}
	return http.ListenAndServe(listen, proxy)
}
