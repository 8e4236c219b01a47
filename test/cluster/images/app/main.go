// Command app is what the test pods run: an HTTP server whose answer tells its
// version. It can be made to fail the ways that a bad release does.
//
//	app [flags]     serve GET / (the version and a newline), /healthz and /readyz;
//	                /instance, /hostname, /env/NAME and /file/PATH: what this start
//	                of the container has got; /ask?url=URL&token=FILE: the answer
//	                that it gets itself, with the token in that file if one is named
//	app version     print the version, for kubectl exec
//	app cat         copy stdin to stdout, for kubectl exec -i
//
// The version is in the environment, so that all of these know it.
package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	version := os.Getenv("APP_VERSION")
	if err := run(version, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "app %s: %v\n", version, err)
		os.Exit(1)
	}
}

func run(version string, args []string) error {
	if len(args) == 1 && args[0] == "version" {
		fmt.Println(version)
		return nil
	}
	if len(args) == 1 && args[0] == "cat" {
		_, err := io.Copy(os.Stdout, os.Stdin)
		return err
	}
	flags := flag.NewFlagSet("app", flag.ContinueOnError)
	listen := flags.String("listen", ":8080", "address to serve at")
	crash := flags.Bool("crash", false, "fail at once")
	unready := flags.Bool("unready", false, "answer 503 to /readyz")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *crash {
		return fmt.Errorf("this version crashes at its start, on purpose")
	}
	return serve(*listen, handler(version, *unready))
}

func handler(version string, unready bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		log.Printf("request from %s", r.RemoteAddr)
		fmt.Fprintln(w, version)
	})
	instance := rand.Text() // another after each start
	mux.HandleFunc("GET /instance", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, instance) })
	mux.HandleFunc("GET /hostname", func(w http.ResponseWriter, _ *http.Request) {
		name, err := os.Hostname() // a pod's name
		found(w, name, err == nil)
	})
	mux.HandleFunc("GET /env/{name}", func(w http.ResponseWriter, r *http.Request) {
		value, ok := os.LookupEnv(r.PathValue("name"))
		found(w, value, ok)
	})
	mux.HandleFunc("GET /file/{path...}", func(w http.ResponseWriter, r *http.Request) {
		content, err := os.ReadFile("/" + r.PathValue("path"))
		found(w, string(content), err == nil)
	})
	mux.HandleFunc("GET /ask", func(w http.ResponseWriter, r *http.Request) {
		if err := ask(w, r); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	})
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if unready {
			http.Error(w, "this version is never ready, on purpose", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}

// ask passes on the answer to a request of the container's own.
func ask(w http.ResponseWriter, r *http.Request) error {
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, r.FormValue("url"), http.NoBody)
	if err != nil {
		return err
	}
	if file := r.FormValue("token"); file != "" {
		token, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+string(token))
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	w.WriteHeader(res.StatusCode)
	_, err = io.Copy(w, res.Body)
	return err
}

func found(w http.ResponseWriter, text string, ok bool) {
	if !ok {
		http.Error(w, "the container has no such thing", http.StatusNotFound)
		return
	}
	fmt.Fprint(w, text)
}

// serve ends without an error when it is signalled to.
func serve(listen string, handler http.Handler) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	failed := make(chan error, 1) // nobody reads it after the signal
	go func() { failed <- http.ListenAndServe(listen, handler) }()
	log.Printf("serving at %s", listen)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}
