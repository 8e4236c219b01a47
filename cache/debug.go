package cache

import (
	"cmp"
	"slices"

	"github.com/edgehub-io/edgehub/cache/view"
)

// ViewState describes a view for operators, without its contents.
type ViewState = view.State

// State describes all stored views, ordered by user and resource.
func (c *Cache) State() []ViewState {
	states := []ViewState{}
	for _, v := range c.views.All() {
		if s, kept := v.State(); kept {
			states = append(states, s)
		}
	}
	slices.SortFunc(states, func(a, b ViewState) int {
		return cmp.Or(
			cmp.Compare(a.User, b.User), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.FieldSelector, b.FieldSelector), cmp.Compare(a.LabelSelector, b.LabelSelector),
			cmp.Compare(a.Representation, b.Representation),
		)
	})
	return states
}
