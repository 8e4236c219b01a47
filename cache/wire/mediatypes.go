package wire

import (
	"mime"
	"slices"
	"strings"

	"github.com/munnerz/goautoneg"
)

// maxMediaTypes bounds the media types of an Accept header that are used. Clients send about three; an
// attacker sends thousands.
const maxMediaTypes = 64

// MediaTypes returns the media types of an Accept header, those that a client prefers first, for bodies that
// are known by their Content-Type only. Parameters are significant: they distinguish aggregated discovery.
// What allows any type is JSON.
func MediaTypes(accept string) (types []string) {
	parts := strings.SplitN(accept, ",", maxMediaTypes+1)
	clauses := goautoneg.ParseAccept(strings.Join(parts[:min(len(parts), maxMediaTypes)], ","))
	if len(clauses) == 0 {
		return []string{"application/json"}
	}
	for _, c := range clauses {
		name := c.Type + "/" + c.SubType
		if name == "*/*" || name == "application/*" {
			name = "application/json"
		}
		if name = mime.FormatMediaType(name, c.Params); c.Q > 0 && name != "" && !slices.Contains(types, name) {
			types = append(types, name)
		}
	}
	return types
}

// MediaType returns a Content-Type in the form that MediaTypes returns.
func MediaType(contentType string) string {
	name, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return ""
	}
	delete(params, "charset")
	return mime.FormatMediaType(name, params)
}
