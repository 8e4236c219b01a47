// Command informer is what many operators are: it watches Services with a shared informer and
// in-cluster configuration. It serves, on port 8080:
//
//	/readyz      whether the informer has synced
//	/services    the names of the Services that it knows, one a line
//	/kubernetes  the apiserver's answer at the name that every program may use for it,
//	             kubernetes.default.svc, to the program's own token
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "informer:", err)
		os.Exit(1)
	}
}

func run() error {
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	named := rest.CopyConfig(config)
	named.Host, named.Timeout = "https://kubernetes.default.svc", 10*time.Second
	byName, err := kubernetes.NewForConfig(named)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	services := factory.Core().V1().Services()
	synced := services.Informer().HasSynced
	factory.Start(context.Background().Done())

	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !synced() {
			http.Error(w, "the informer has not synced", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /services", func(w http.ResponseWriter, _ *http.Request) {
		all, err := services.Lister().List(labels.Everything())
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		var names []string
		for _, s := range all {
			names = append(names, name(s))
		}
		slices.Sort(names)
		for _, n := range names {
			fmt.Fprintln(w, n)
		}
	})
	mux.HandleFunc("GET /kubernetes", func(w http.ResponseWriter, r *http.Request) {
		body, err := byName.CoreV1().RESTClient().Get().Resource("services").DoRaw(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		_, _ = w.Write(body)
	})
	server := &http.Server{Addr: ":8080", Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	return server.ListenAndServe()
}

func name(s *corev1.Service) string { return s.Namespace + "/" + s.Name }
