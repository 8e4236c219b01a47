package ota

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/edgehub-io/edgehub/ota/nodeapi"
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
	values, err := url.ParseQuery(query)
	if err != nil {
		return w, fmt.Errorf("the query cannot be read: %w", err)
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if len(values[key]) != 1 {
			return w, fmt.Errorf("%.50q is given %d times", key, len(values[key]))
		}
		if err := w.set(key, values.Get(key), now); err != nil {
			return w, err
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

// set sets one parameter. Window and TimeZone are checked together, later.
func (w *When) set(key, value string, now time.Time) error {
	var err error
	switch key {
	case nodeapi.AtParam:
		if w.At, err = schedule.ParseAt(value, now); err != nil {
			err = fmt.Errorf("%s: %w", key, err)
		}
	case nodeapi.WindowParam:
		w.Window = value
	case nodeapi.TimeZoneParam:
		w.TimeZone = value
	case nodeapi.ForceParam:
		if w.Force, err = strconv.ParseBool(value); err != nil {
			err = fmt.Errorf("%s: %.20q is neither true nor false", key, value)
		}
	default:
		err = fmt.Errorf("%.50q is no parameter: there are %s, %s, %s and %s", key, nodeapi.AtParam, nodeapi.WindowParam, nodeapi.TimeZoneParam, nodeapi.ForceParam)
	}
	return err
}
