package expectations

import (
	"strconv"
	"strings"
)

// maxQuoted is how much of an error is repeated in conditions and Events: enough for the
// name of a webhook or policy and its reason.
const maxQuoted = 200

// QuoteError quotes an error of the apiserver within bounds: the text may come from any admission
// webhook or policy, and be of any length.
func QuoteError(err error) string {
	text := err.Error()
	if len(text) > maxQuoted {
		text = strings.ToValidUTF8(text[:maxQuoted], "") + "..."
	}
	return strconv.Quote(text)
}
