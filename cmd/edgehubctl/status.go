package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/edgehub-io/edgehub/cmd/edgehubctl/hubclient"
	"github.com/edgehub-io/edgehub/cmd/edgehubctl/statusview"
	"github.com/edgehub-io/edgehub/ota/api"
)

// wide is an --output of tables: a line for each row, however long, and more columns.
const wide = "wide"

func status(ctx context.Context, c *call) error {
	r, err := c.hubReport(ctx)
	if err != nil {
		return err
	}
	if c.output == "json" {
		err = printJSON(c.out, r)
	} else {
		fmt.Fprint(c.out, r.Text(time.Now(), c.width()))
		if c.output == wide {
			fmt.Fprint(c.out, r.RouteTables())
		}
	}
	if err == nil && !r.Ready {
		return endf(exitNotNow, "%s", r.Readiness)
	}
	return err
}

func (c *call) hubReport(ctx context.Context) (*statusview.Report, error) {
	r := &statusview.Report{Address: c.hub.Address(), Ready: true, ImagePulls: []api.ImagePull{}}
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
		Views []statusview.View `json:"views"`

		PodAccess  *api.PodAccess `json:"podAccess"`
		Transforms []string       `json:"transforms"`
	}
	if err := c.hub.ReadIfKnown(ctx, api.Cache, &kept); err != nil {
		return nil, err
	}
	if r.Cloud = kept.Cloud; kept.Views != nil {
		r.Cache = statusview.SumUp(kept.Views)
	}
	r.Clone, r.PodAccess, r.Transforms = kept.Clone, kept.PodAccess, kept.Transforms
	pulls, err := c.hub.ImagePulls(ctx)
	r.ImagePulls = append(r.ImagePulls, pulls...)
	return r, err
}
