package limits

import (
	"fmt"
	"testing"
)

// enter has as many requests enter as are admitted, up to n.
func enter(s *Shares, tenant, user string, n int) (in []*Share) {
	for range n {
		if share, ok := s.Enter(tenant, user); ok {
			in = append(in, share)
		}
	}
	return in
}

func TestNobodyTakesAllRequests(t *testing.T) {
	const most = 4096
	for name, tt := range map[string]struct {
		tenants, users int
		held           int // by all of them
	}{
		"one user":                            {1, 1, 1366},
		"many users of one tenant":            {1, 1000, 2048},
		"one user of each of three tenants":   {3, 1, 2883},
		"many users of each of three tenants": {3, 1000, 3584},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewShares(most)
			held := 0
			for tenant := range tt.tenants {
				for user := range tt.users {
					held += len(enter(s, fmt.Sprint(tenant), fmt.Sprint(user), most/3+1))
				}
			}
			if held != tt.held {
				t.Errorf("%d of %d are held, want %d", held, most, tt.held)
			}
			if len(enter(s, "another", "user", 100)) != 100 {
				t.Error("another tenant finds no room for a hundred")
			}
		})
	}
}

func TestAShareThatIsLeftIsFree(t *testing.T) {
	s := NewShares(6)
	in := enter(s, "a", "u", 6)
	if len(in) != 2 {
		t.Fatalf("one user holds %d of 6", len(in))
	}
	if in[0].Move("b", "v"); in[0].Payer() != "b" || in[1].Payer() != "a" {
		t.Errorf("%q and %q pay", in[0].Payer(), in[1].Payer())
	}
	if len(enter(s, "a", "u", 6)) != 1 {
		t.Error("a request that counts for another tenant now counts for the first still")
	}
	if !in[1].Move("b", "v") {
		t.Error("it does not fit where its new user has one of six, and four are free")
	}
	more := enter(s, "c", "w", 1)
	if more[0].Move("b", "v") {
		t.Error("it fits where its new user has two of six, and three are free")
	}
	more[0].Leave()
	for range 2 {
		in[0].Leave()
		in[1].Leave()
	}
	if len(s.tenants) != 1 || len(s.users) != 1 || s.n != 1 {
		t.Errorf("when all but one have left, there are %d of %v", s.n, s.users)
	}
}
