// Package params reads the query parameters of the node's HTTP API. A misspelled parameter must not be ignored,
// since it may be what keeps an upgrade from beginning now, and of one that is given twice nobody knows which counts.
//
// Errors are one line that names the parameter. All functions are safe for concurrent use.
package params

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Parse returns the parameters of a URL's query. It fails if one is not known, or is given more than once.
func Parse(query string, known ...string) (url.Values, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("the query cannot be read: %w", err)
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		switch {
		case !slices.Contains(known, key):
			return nil, fmt.Errorf("%.50q is no parameter: there %s", key, are(known))
		case len(values[key]) > 1:
			return nil, fmt.Errorf("%.50q is given %d times", key, len(values[key]))
		}
	}
	return values, nil
}

// Bool returns a parameter that is true or false, and false if it is not given.
func Bool(values url.Values, name string) (bool, error) {
	if !values.Has(name) {
		return false, nil
	}
	value, err := strconv.ParseBool(values.Get(name))
	if err != nil {
		return false, fmt.Errorf("%s: %.20q is neither true nor false", name, values.Get(name))
	}
	return value, nil
}

func are(known []string) string {
	last := len(known) - 1
	switch last {
	case -1:
		return "are none"
	case 0:
		return "is " + known[0]
	}
	return "are " + strings.Join(known[:last], ", ") + " and " + known[last]
}
