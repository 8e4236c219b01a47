package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/test/bench/process"
)

const (
	// memoryLimit is in MB.
	memoryLimit   = 80.0
	serviceCount  = 1000
	sliceCount    = 1000
	endpointCount = 5 // of each slice
)

// memory has three clients read all pods, services and endpointslices, and keep
// watches on them, and measures what the hub takes for that.
func (b *bench) memory(ctx context.Context) error {
	tokens, err := b.prepareMemory(ctx)
	if err != nil {
		return err
	}
	resident := &bounded{name: fmt.Sprintf("resident, %d pods, %d services, %d slices, 9 watches", podCount, serviceCount, sliceCount), unit: "MB", limit: new(memoryLimit)}
	var peaks []float64
	for i := range b.rounds {
		now, peak, err := b.memoryRound(ctx, fmt.Sprint("memory-", i), tokens)
		if err != nil {
			return err
		}
		resident.values, peaks = append(resident.values, megabytes(now)), append(peaks, megabytes(peak))
	}
	b.show(resident.row())
	b.showDetail("most while all three read at once", "MB", median(peaks))
	return nil
}

func (b *bench) memoryRound(ctx context.Context, dir string, tokens []string) (now, peak int64, err error) {
	e, err := b.newEdge(b.apiserver, b.kubeconfig, dir)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	if err := e.start(ctx); err != nil {
		return 0, 0, err
	}
	watching, leave := context.WithCancel(ctx)
	defer leave()
	clients, together := errgroup.WithContext(watching)
	for _, token := range append([]string{""}, tokens...) {
		clients.Go(func() error { // one after the other, as a kubelet's informers do
			for _, path := range []string{"/api/v1/pods", "/api/v1/services", "/apis/discovery.k8s.io/v1/endpointslices"} {
				if err := e.follow(watching, path, token); err != nil {
					return err
				}
			}
			return together.Err()
		})
	}
	if err := clients.Wait(); err != nil {
		return 0, 0, err
	}
	if err := e.awaitDisk(ctx); err != nil {
		return 0, 0, err
	}
	if now, err = e.resident(); err != nil {
		return 0, 0, err
	}
	peak, err = process.Peak(e.cmd.Process.Pid)
	return now, peak, err
}

// follow opens a watch that begins with all there is, and returns when that has come.
// Until ctx ends, one that ends is opened again in the same way, as an informer does.
func (t *target) follow(ctx context.Context, path, token string) error {
	body, err := t.watchList(ctx, path, token)
	if err != nil {
		return err
	}
	go func() {
		for {
			if body != nil {
				_, _ = io.Copy(io.Discard, body)
				_ = body.Close()
			}
			if pause(ctx, time.Second) != nil {
				return
			}
			body, _ = t.watchList(ctx, path, token)
		}
	}()
	return nil
}

// watchList opens a watch that begins with all there is, and returns what follows that.
func (t *target) watchList(ctx context.Context, path, token string) (io.ReadCloser, error) {
	separator := "?"
	if strings.Contains(path, "?") {
		separator = "&"
	}
	res, err := t.open(ctx, path+separator+"watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", token)
	if err != nil {
		return nil, err
	}
	end := []byte(metav1.InitialEventsAnnotationKey)
	var seen []byte
	piece := make([]byte, 64<<10)
	for {
		n, err := res.Body.Read(piece)
		seen = append(seen, piece[:n]...)
		if bytes.Contains(seen, end) {
			return res.Body, nil
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("watch of %s: %w", path, err), res.Body.Close())
		}
		seen = seen[max(0, len(seen)-len(end)):]
	}
}

// prepareMemory makes what is read, and two users who may.
func (b *bench) prepareMemory(ctx context.Context) (tokens []string, err error) {
	g, making := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for i := range serviceCount {
		g.Go(func() error {
			service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("service-%04d", i)}, Spec: corev1.ServiceSpec{
				ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": fmt.Sprint("app-", i)}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}}
			_, err := b.client.CoreV1().Services(namespace).Create(making, service, metav1.CreateOptions{})
			return err
		})
	}
	for i := range sliceCount {
		g.Go(func() error {
			slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("slice-%04d", i)}, AddressType: discoveryv1.AddressTypeIPv4}
			for j := range endpointCount {
				slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.%d.%d.%d", 1+j, i/250, 1+i%250)}})
			}
			_, err := b.client.DiscoveryV1().EndpointSlices(namespace).Create(making, slice, metav1.CreateOptions{})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for _, name := range []string{"first", "second"} {
		token, err := b.user(ctx, name)
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, token)
	}
	return tokens, nil
}

// user makes a service account that may do everything, and returns a token of it.
func (b *bench) user(ctx context.Context, name string) (token string, err error) {
	accounts := b.client.CoreV1().ServiceAccounts(namespace)
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "bench-" + name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: namespace}},
	}
	if _, err := b.client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	request, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return request.Status.Token, nil
}
