package flood

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
)

func get(ctx context.Context, client *http.Client, url, token string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return do(client, req)
}

// renew writes the node's Lease without changing it, which would interfere with kubelet.
func renew(ctx context.Context, client *http.Client) error {
	url := env.node.SecureURL() + "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/" + env.node.Name() + "?dryRun=All"
	req, err := http.NewRequestWithContext(ctx, http.MethodPatch, url, strings.NewReader("{}"))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/merge-patch+json")
	return do(client, req)
}

func do(client *http.Client, req *http.Request) error {
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%d %.200s", res.StatusCode, body)
	}
	return nil
}
