package engineapi

import (
	"errors"
	"testing"
)

func TestExplain(t *testing.T) {
	err := NewError(Unauthorized, errors.New("refused"))
	more := err.Explain("a", nil).Explain("a", errors.New("secret a/b cannot be read"))
	if more.Error() != "refused; secret a/b cannot be read" || more.Reason != Unauthorized || err.Error() != "refused" {
		t.Errorf("got %q of %q", more, err)
	}
}
