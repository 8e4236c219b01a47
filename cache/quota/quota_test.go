package quota_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/edgehub-io/edgehub/cache/identity"
	"github.com/edgehub-io/edgehub/cache/quota"
)

// account is the key of a service account, NAMESPACE:NAME.
func account(name string) string {
	return identity.User{Name: "system:serviceaccount:" + name, UID: "1"}.Key()
}

// item reads "user/key bytes last", followed by flags. A user with a colon is a service
// account.
func item(t *testing.T, text string) quota.Item[string] {
	t.Helper()
	var i quota.Item[string]
	fields := strings.Fields(text)
	user, key, _ := strings.Cut(fields[0], "/")
	if i.User, i.Key = user, key; strings.Contains(user, ":") {
		i.User = account(user)
	}
	if _, err := fmt.Sscan(fields[1]+" "+fields[2], &i.Bytes, &i.Last); err != nil {
		t.Fatal(err)
	}
	i.InUse = slices.Contains(fields, "inUse")
	i.Fixed = slices.Contains(fields, "fixed")
	return i
}

func TestWhoLosesFirst(t *testing.T) {
	const many = 1 << 30
	for name, test := range map[string]struct {
		bounds quota.Bounds
		items  []string
		want   []string
	}{
		"nobody, within the bounds": {
			quota.Bounds{Count: 2, Bytes: 20}, []string{"a/1 10 1", "a/2 10 2"}, nil,
		},
		"of one user, what was used least recently": {
			quota.Bounds{Count: 2, Bytes: many}, []string{"a/1 1 3", "a/2 1 1", "a/3 1 2", "a/4 1 4"}, []string{"2", "3"},
		},
		"who holds the most, though another's is older": {
			quota.Bounds{Count: 3, Bytes: many}, []string{"victim/1 1 1", "a/2 1 5", "a/3 1 6", "a/4 1 7"}, []string{"2"},
		},
		"by bytes where they are too many": {
			quota.Bounds{Count: 9, Bytes: 100}, []string{"a/1 80 9", "b/2 10 1", "b/3 10 2", "b/4 10 3"}, []string{"1"},
		},
		"what is in use after all else of its user, but before another's": {
			quota.Bounds{Count: 2, Bytes: many}, []string{"a/1 1 1 inUse", "a/2 1 9", "a/3 1 8", "a/4 1 2 inUse", "b/5 1 0"}, []string{"3", "2", "1"},
		},
		"until two users hold as much": {
			quota.Bounds{Count: many, Bytes: 100}, []string{"a/1 30 1", "a/2 30 2", "a/3 30 3", "a/4 30 4", "b/5 30 0"}, []string{"1", "2"},
		},
		"the node has three times the share of another": {
			quota.Bounds{Count: 5, Bytes: many}, []string{"node/1 1 1", "node/2 1 2", "node/3 1 3", "a/4 1 4", "a/5 1 5", "a/6 1 6"}, []string{"4"},
		},
		"the node, where it holds more than that": {
			quota.Bounds{Count: 4, Bytes: many}, []string{"node/1 1 1", "node/2 1 2", "node/3 1 3", "node/4 1 4", "a/5 1 0"}, []string{"1"},
		},
		"the accounts of a namespace together, though each holds less than another user": {
			quota.Bounds{Count: 5, Bytes: many}, []string{"a/1 1 1", "a/2 1 2", "ns:a/3 1 9", "ns:b/4 1 8", "ns:c/5 1 7", "ns:d/6 1 6"}, []string{"3"},
		},
		"of the accounts of a namespace, the one that holds the most": {
			quota.Bounds{Count: 4, Bytes: many}, []string{"ns:a/1 1 0", "ns:b/2 1 4", "ns:b/3 1 3", "ns:b/4 1 2", "ns:c/5 1 1", "other:a/6 1 0"}, []string{"4", "3"},
		},
		"of the accounts of a namespace, by bytes": {
			quota.Bounds{Count: many, Bytes: 100}, []string{"ns:a/1 20 1", "ns:a/2 20 2", "ns:b/3 50 9", "other:a/4 30 0"}, []string{"3"},
		},
		"not who holds more than any account of a namespace that holds more": {
			quota.Bounds{Count: 5, Bytes: many}, []string{"ns:a/1 1 1", "ns:a/2 1 2", "x:a/3 1 9", "x:b/4 1 9", "x:c/5 1 9", "x:d/6 1 8"}, []string{"3"},
		},
		"never what is fixed": {
			quota.Bounds{Count: 1, Bytes: 1}, []string{"node/1 50 1 fixed", "node/2 50 2 fixed", "a/3 1 9", "node/4 1 9"}, []string{"4", "3"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var items []quota.Item[string]
			for _, text := range test.items {
				items = append(items, item(t, text))
			}
			var got []string
			for _, i := range quota.Excess(test.bounds, items) {
				got = append(got, i.Key)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("%v go, want %v", got, test.want)
			}
		})
	}
}

// However many users flood the hub, also by many accounts of a namespace, a tenant within its share loses nothing.
func TestAFloodTakesNothingFromWhoIsWithinItsShare(t *testing.T) {
	const count, tenants = 720, 3 + 5 // of which the node counts as three
	var items []quota.Item[string]
	add := func(user string, n int) {
		for i := range n {
			items = append(items, quota.Item[string]{Key: user, User: user, Bytes: 10, Last: int64(i)})
		}
	}
	add(quota.Node, 3*count/tenants)
	add("victim", count/tenants)
	add(account("victims:a"), count/tenants/2)
	add(account("victims:b"), count/tenants/2)
	for i := range 2 {
		add(fmt.Sprint("flood", i), 10_000)
	}
	for i := range 200 {
		add(account(fmt.Sprint("flood:a", i)), 5)
	}
	for name, bounds := range map[string]quota.Bounds{
		"in number": {Count: count, Bytes: 1 << 30}, "in bytes": {Count: 1 << 30, Bytes: 10 * count},
	} {
		excess := quota.Excess(bounds, items)
		if left := len(items) - len(excess); left != count {
			t.Errorf("%s: %d are left, want %d", name, left, count)
		}
		for _, i := range excess {
			if !strings.Contains(i.User, "flood") {
				t.Fatalf("%s: %s loses something", name, i.User)
			}
		}
	}
}
