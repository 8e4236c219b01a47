package wire

import (
	"fmt"
	"strconv"
)

// listMeta reads a value that has to be a metav1.ListMeta. What it does not know it
// refuses: it could not be written again.
func (m *members) listMeta(meta *ListMeta) {
	var seen uint8
	o := membersAt(m.b, m.pos)
	for o.next() {
		switch string(o.key) {
		case "selfLink":
			o.once(&seen, 1<<0)
			meta.SelfLink = string(o.text())
		case "resourceVersion":
			o.once(&seen, 1<<1)
			meta.ResourceVersion = string(o.text())
		case "continue":
			o.once(&seen, 1<<2)
			meta.Continue = string(o.text())
		case "remainingItemCount":
			o.once(&seen, 1<<3)
			meta.RemainingItemCount = o.count()
		default:
			o.err = fmt.Errorf("its metadata has a member %.40q: %w", o.key, ErrNotList)
		}
	}
	m.pos, m.err = o.pos, o.err
}

// count reads a value that has to be an integer or null.
func (m *members) count() *int64 {
	value := m.skip()
	if m.err != nil || string(value) == "null" {
		return nil
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil {
		m.err = fmt.Errorf("%.40q is not a count: %w", value, ErrMalformed)
		return nil
	}
	return &n
}
