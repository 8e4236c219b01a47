package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota/bundle"
	"github.com/edgehub-io/edgehub/proxy/authn"
)

const (
	// keysEvery is how often the keys for signed bundles are read while the cloud is there, and keysAgain after a failure.
	keysEvery, keysAgain = time.Hour, time.Minute
	keysTimeout          = 30 * time.Second
	// maxKeys is more than a ConfigMap has, in bytes.
	maxKeys = 2 << 20
)

// followKeys reads the keys for signed bundles from the cloud, at each return and once an hour, until ctx ends.
func (u *upgrades) followKeys(ctx context.Context) {
	ctx = authn.AsNode(ctx)
	for failing := false; u.cloud.binding.AwaitMaySend(ctx) == nil; {
		next := keysEvery
		data, at, err := readKeys(ctx, u.cloud.binding)
		if err == nil {
			err = u.bundles.SetKeys(data, at)
		}
		if err != nil {
			next = keysAgain
			if !failing && ctx.Err() == nil {
				u.log.Warn("the keys for signed bundles cannot be read from the cloud; trying again", "err", err)
			}
		}
		failing = err != nil
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
		case <-u.cloud.upstream.Lost(ctx):
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// readKeys returns the data of the ConfigMap with the keys, nil if there is none or the node may not read it, and when that was read, by
// the cloud's clock. The request goes to an apiserver past the cache, which answers offline, too.
func readKeys(ctx context.Context, cloud http.RoundTripper) (map[string]string, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, keysTimeout)
	defer cancel()
	const path = "/api/v1/namespaces/" + bundle.KeysNamespace + "/configmaps/" + bundle.KeysName
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody)
	if err != nil {
		return nil, time.Time{}, err
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "edgehub")
	res, err := cloud.RoundTrip(r)
	if err != nil {
		return nil, time.Time{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxKeys))
	if err != nil {
		return nil, time.Time{}, err
	}
	at, err := http.ParseTime(res.Header.Get("Date"))
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("the answer to GET %s does not say when it was given: %w", path, err)
	}
	var object corev1.ConfigMap
	var status metav1.Status
	switch res.StatusCode {
	case http.StatusOK:
		err = json.Unmarshal(body, &object)
		if err == nil && object.Name != bundle.KeysName {
			err = errors.New("it is another object") // what stands between has answered
		}
		return object.Data, at, err
	case http.StatusNotFound, http.StatusForbidden: // only if it is the answer of an apiserver, and not of a proxy
		if err := json.Unmarshal(body, &status); err == nil && (status.Reason == metav1.StatusReasonNotFound || status.Reason == metav1.StatusReasonForbidden) {
			return nil, at, nil
		}
	}
	return nil, at, fmt.Errorf("the answer to GET %s is %s", path, res.Status)
}
