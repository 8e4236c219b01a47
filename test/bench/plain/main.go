// Command plain sends the bytes of one file, whatever it is asked for: what a hub
// that answers from its cache is measured beside.
package main

import (
	"log"
	"net/http"
	"os"
	"strconv"

	"github.com/spf13/pflag"
)

func main() {
	listen := pflag.String("listen", "", "address to serve on")
	file := pflag.String("file", "", "what is sent")
	contentType := pflag.String("content-type", "", "what it is")
	pflag.Parse()
	body, err := os.ReadFile(*file)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe(*listen, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", *contentType)
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body) // the client may have gone
	})))
}
