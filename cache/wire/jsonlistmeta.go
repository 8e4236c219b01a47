package wire

import (
	"fmt"
	"strconv"

	"github.com/edgehub-io/edgehub/cache/wire/jsonscan"
)

// listMeta reads a value that has to be a metav1.ListMeta. What it does not know it
// refuses: it could not be written again.
func readListMeta(m *jsonscan.Members, meta *ListMeta) {
	var seen uint8
	o := jsonscan.MembersAt(m.Data, m.Pos)
	for o.Next() {
		switch string(o.Key) {
		case "selfLink":
			o.Once(&seen, 1<<0)
			meta.SelfLink = string(o.Text())
		case "resourceVersion":
			o.Once(&seen, 1<<1)
			meta.ResourceVersion = string(o.Text())
		case "continue":
			o.Once(&seen, 1<<2)
			meta.Continue = string(o.Text())
		case "remainingItemCount":
			o.Once(&seen, 1<<3)
			meta.RemainingItemCount = readCount(&o)
		default:
			o.Err = fmt.Errorf("its metadata has a member %.40q: %w", o.Key, ErrNotList)
		}
	}
	m.Pos, m.Err = o.Pos, o.Err
}

// count reads a value that has to be an integer or null.
func readCount(m *jsonscan.Members) *int64 {
	value := m.Skip()
	if m.Err != nil || string(value) == "null" {
		return nil
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil {
		m.Err = fmt.Errorf("%.40q is not a count: %w", value, ErrMalformed)
		return nil
	}
	return &n
}
