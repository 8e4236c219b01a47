package events

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestEventMessagesAreTruncatedBetweenRunes(t *testing.T) {
	if got := truncated(strings.Repeat("ü", 1000)); !utf8.ValidString(got) || len(got) > maxEventMessage {
		t.Errorf("got %d bytes: %q", len(got), got)
	}
}
