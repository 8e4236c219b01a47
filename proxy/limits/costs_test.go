package limits

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestEachTenantSpendsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shares, c := NewShares(1000), NewCosts(10, 2)
		spend := func(tenant, user string) (n int) {
			share, ok := shares.Enter(tenant, user)
			if !ok {
				t.Fatal("no share")
			}
			defer share.Leave()
			for range 100 {
				if c.Spend(share, 1) {
					n++
				}
			}
			return n
		}
		for who, want := range map[[2]string]int{{"a", "u"}: 10, {"", "p"}: 10, {"", "q"}: 10} {
			if n := spend(who[0], who[1]); n != want {
				t.Errorf("%q spends %d, want %d", who, n, want)
			}
		}
		if n := spend("a", "another"); n != 0 {
			t.Errorf("another user of a tenant that has spent all spends %d", n)
		}
		time.Sleep(3 * time.Second)
		if n := spend("a", "u"); n != 6 {
			t.Errorf("after three seconds it spends %d, want 6", n)
		}
		share, _ := shares.Enter("a", "u")
		c.Spend(share, -1)
		if n := spend("a", "u"); n != 1 {
			t.Errorf("of one that was given back it spends %d", n)
		}
	})
}

func TestThoseThatHaveSpentNothingAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shares, c := NewShares(1000), NewCosts(10, 2)
		for i := range 10_000 {
			share, _ := shares.Enter("", fmt.Sprint(i))
			c.Spend(share, 1)
			share.Leave()
			time.Sleep(time.Millisecond)
		}
		if n := len(c.spent); n > 2*500+32 { // one is forgotten after half a second
			t.Errorf("%d are known", n)
		}
	})
}
