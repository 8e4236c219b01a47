package ota

import (
	"fmt"
	"time"

	"github.com/edgehub-io/edgehub/ota/nodeapi"
	"github.com/edgehub-io/edgehub/ota/params"
	"github.com/edgehub-io/edgehub/ota/schedule"
)

// When is when an upgrade begins. The zero value is as soon as the cloud can be reached.
type When struct {
	At       time.Time // zero: no such time
	Window   string    // as nodeapi.WindowParam
	TimeZone string    // as nodeapi.TimeZoneParam
	// Force is in spite of a hold.
	Force bool
}

// later reports whether the upgrade is for a time or window.
func (w When) later() bool { return !w.At.IsZero() || w.Window != "" }

// parseWhen reads the query of POST upgrade. Its errors name the parameter that is wrong.
func parseWhen(query string, now time.Time) (When, error) {
	var w When
	values, err := params.Parse(query, nodeapi.AtParam, nodeapi.WindowParam, nodeapi.TimeZoneParam, nodeapi.ForceParam)
	if err != nil {
		return w, err
	}
	w.Window, w.TimeZone = values.Get(nodeapi.WindowParam), values.Get(nodeapi.TimeZoneParam)
	if w.Force, err = params.Bool(values, nodeapi.ForceParam); err != nil {
		return w, err
	}
	if values.Has(nodeapi.AtParam) {
		if w.At, err = schedule.ParseAt(values.Get(nodeapi.AtParam), now); err != nil {
			return w, fmt.Errorf("%s: %w", nodeapi.AtParam, err)
		}
	}
	switch {
	case values.Has(nodeapi.AtParam) && values.Has(nodeapi.WindowParam):
		return w, fmt.Errorf("%s and %s are both given: give one", nodeapi.AtParam, nodeapi.WindowParam)
	case values.Has(nodeapi.TimeZoneParam) && !values.Has(nodeapi.WindowParam):
		return w, fmt.Errorf("%s is given without %s", nodeapi.TimeZoneParam, nodeapi.WindowParam)
	case values.Has(nodeapi.WindowParam):
		if _, err = schedule.ParseWindow(w.Window, w.TimeZone, time.Local); err != nil {
			err = fmt.Errorf("%s or %s: %w", nodeapi.WindowParam, nodeapi.TimeZoneParam, err)
		}
	}
	return w, err
}
