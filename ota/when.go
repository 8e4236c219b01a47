package ota

import (
	"fmt"
	"time"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/params"
	"github.com/edgehub-io/edgehub/ota/schedule"
)

// When is when an upgrade begins. The zero value is as soon as the cloud can be reached.
type When struct {
	At       time.Time // zero: no such time
	Window   string    // as api.WindowParam
	TimeZone string    // as api.TimeZoneParam
	// Force is in spite of a hold.
	Force bool
}

// later reports whether the upgrade is for a time or window.
func (w When) later() bool { return !w.At.IsZero() || w.Window != "" }

// parseWhen reads the query of POST upgrade. Its errors name the parameter that is wrong.
func parseWhen(query string, now time.Time) (When, error) {
	var w When
	values, err := params.Parse(query, api.AtParam, api.WindowParam, api.TimeZoneParam, api.ForceParam)
	if err != nil {
		return w, err
	}
	w.Window, w.TimeZone = values.Get(api.WindowParam), values.Get(api.TimeZoneParam)
	if w.Force, err = params.Bool(values, api.ForceParam); err != nil {
		return w, err
	}
	if values.Has(api.AtParam) {
		if w.At, err = schedule.ParseAt(values.Get(api.AtParam), now); err != nil {
			return w, fmt.Errorf("%s: %w", api.AtParam, err)
		}
	}
	switch {
	case values.Has(api.AtParam) && values.Has(api.WindowParam):
		return w, fmt.Errorf("%s and %s are both given: give one", api.AtParam, api.WindowParam)
	case values.Has(api.TimeZoneParam) && !values.Has(api.WindowParam):
		return w, fmt.Errorf("%s is given without %s", api.TimeZoneParam, api.WindowParam)
	case values.Has(api.WindowParam):
		if _, err = schedule.ParseWindow(w.Window, w.TimeZone, time.Local); err != nil {
			err = fmt.Errorf("%s or %s: %w", api.WindowParam, api.TimeZoneParam, err)
		}
	}
	return w, err
}
