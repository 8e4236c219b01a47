package ota

import (
	"errors"
	"io"
	"net/http"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/bundle"
	"github.com/edgehub-io/edgehub/ota/params"
)

// Bundles has the signed bundles of the node. It must be safe for concurrent use.
type Bundles interface {
	// Check verifies a bundle, and Take takes it; see bundle.Store.
	Check(envelope []byte) (api.UpgradeBundle, error)
	Take(envelope []byte) (api.UpgradeBundle, error)
	List() []api.UpgradeBundle
	// Offered returns a pod with what a bundle offers it.
	Offered(pod *corev1.Pod) *corev1.Pod
}

func (s *server) listBundles(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, api.UpgradeBundleList{Items: s.Bundles.List()}, "")
}

// checkCloudsTarget fails if it is a bundle that offers the pod its upgrade. The pod was read while the cloud was away. Another comes in
// place of a pod that is deleted, and the cloud decides of which revision.
func checkCloudsTarget(pod *corev1.Pod) error {
	if !bundle.IsOffered(pod) {
		return nil
	}
	return failf(http.StatusServiceUnavailable, "pod %s was not upgraded: a bundle offers it another version, and the cloud, which is back just now, may have one, too: send the request again", nameOf(pod))
}

// takeBundle takes the bundle in the body, or only verifies it. Whoever may call may carry a bundle: what counts is its signature.
func (s *server) takeBundle(w http.ResponseWriter, r *http.Request) error {
	values, err := params.Parse(r.URL.RawQuery, api.DryRunParam)
	if err != nil {
		return failf(http.StatusBadRequest, "%w", err)
	}
	take := s.Bundles.Take
	switch value := values.Get(api.DryRunParam); value {
	case "":
	case api.DryRunAll:
		take = s.Bundles.Check
	default:
		return failf(http.StatusBadRequest, "%s=%.20q: want %s, or leave it out", api.DryRunParam, value, api.DryRunAll)
	}
	envelope, err := io.ReadAll(http.MaxBytesReader(w, r.Body, api.MaxUpgradeBundle))
	if err != nil {
		w.Header().Set("Connection", "close") // the rest is not read
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return failf(http.StatusRequestEntityTooLarge, "the request's body has more than the %d bytes of a signed bundle: send its file %s alone", api.MaxUpgradeBundle, api.UpgradeBundleFile)
		}
		return failf(http.StatusBadRequest, "the signed bundle did not arrive whole: %w", err)
	}
	b, err := take(envelope)
	_, refused := errors.AsType[*bundle.RefusedError](err)
	switch {
	case refused:
		if left, ok := s.refusals.allow(refusalKind{"bundle", http.StatusForbidden}); ok {
			s.Logger.Warn("a signed bundle was refused", "why", oneLine(err), "others", left)
		}
		return failf(http.StatusForbidden, "%w", err)
	case bundle.IsDisk(err):
		return failf(http.StatusInternalServerError, "the bundle was not taken, since that could not be written down: %w", err)
	case err != nil:
		return failf(http.StatusBadRequest, "%w", err)
	}
	return writeJSON(w, b, "")
}
