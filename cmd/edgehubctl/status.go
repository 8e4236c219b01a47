package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/edgehub-io/edgehub/cmd/edgehubctl/hubclient"
	"github.com/edgehub-io/edgehub/cmd/edgehubctl/view"
	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/ota/api"
)

func status(ctx context.Context, c *call) error {
	r, err := c.hubReport(ctx)
	if err != nil {
		return err
	}
	text := r.Text(time.Now(), c.width())
	if c.output == wide {
		text += r.RouteTables()
	}
	if err := c.print(r, text); err != nil || r.Ready {
		return err
	}
	return cli.Errorf(cli.NotNow, "%s", r.Readiness)
}

func (c *call) hubReport(ctx context.Context) (*view.Status, error) {
	r := &view.Status{Address: c.hub.Address(), Ready: true, ImagePulls: []api.ImagePull{}}
	var err error
	r.Readiness, err = c.hub.Ask(ctx, http.MethodGet, api.Readyz)
	if no, ok := errors.AsType[*hubclient.APIError](err); ok {
		r.Ready, r.Readiness = false, no.Text
	} else if err != nil {
		return nil, err
	}
	var kept struct {
		Cloud *api.CloudState   `json:"cloud"`
		Clone string            `json:"clone"`
		Views []view.CachedView `json:"views"`

		PodAccess  *api.PodAccess `json:"podAccess"`
		Transforms []string       `json:"transforms"`
	}
	if err := c.hub.Read(ctx, api.Cache, &kept); err != nil {
		return nil, err
	}
	if r.Cloud = kept.Cloud; kept.Views != nil {
		r.Cache = view.SumUp(kept.Views)
	}
	r.Clone, r.PodAccess, r.Transforms = kept.Clone, kept.PodAccess, kept.Transforms
	pulls, err := c.hub.ImagePulls(ctx)
	r.ImagePulls = append(r.ImagePulls, pulls...)
	return r, err
}
