// Command bare is what a hub is measured beside: httputil.ReverseProxy and nothing
// else, which talks HTTP/2 to the apiserver, as the hub does; or, with --file, a server that
// sends the same bytes whatever it is asked for, as a hub does that answers from its cache.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"

	"github.com/spf13/pflag"
)

func main() {
	listen := pflag.String("listen", "", "address to serve on")
	server := pflag.String("server", "", "URL of the apiserver")
	ca := pflag.String("ca", "", "CA of the apiserver")
	cert := pflag.String("cert", "", "client certificate")
	key := pflag.String("key", "", "client key")
	overTLS := pflag.Bool("tls", false, "serve over TLS, with the client certificate")
	file := pflag.String("file", "", "what is sent in place of the apiserver's answers, in protobuf")
	pflag.Parse()
	if *file != "" {
		log.Fatal(send(*listen, *file))
	}
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

func send(listen, file string) error {
	body, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return http.ListenAndServe(listen, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body) // the client may have gone
	}))
}
