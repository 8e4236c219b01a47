package limits

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestEachTenantSpendsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shares, c := NewShares(1000), NewCosts[Payer](10, 2)
		spend := func(tenant, user string) (n int) {
			share, ok := shares.Enter(tenant, user)
			if !ok {
				t.Fatal("no share")
			}
			defer share.Leave()
			for range 100 {
				if c.Spend(share.Payer(), 1) {
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
		c.Spend(share.Payer(), -1)
		if n := spend("a", "u"); n != 1 {
			t.Errorf("of one that was given back it spends %d", n)
		}
	})
}

func TestThoseThatHaveSpentNothingAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shares, c := NewShares(1000), NewCosts[Payer](10, 2)
		for i := range 10_000 {
			share, _ := shares.Enter("", fmt.Sprint(i))
			c.Spend(share.Payer(), 1)
			share.Leave()
			time.Sleep(time.Millisecond)
		}
		if n := len(c.spent); n > 2*500+32 { // one is forgotten after half a second
			t.Errorf("%d are known", n)
		}
	})
}

func TestWhatIsOwedIsPaidInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCosts[string](10, 2)
		owe := func(n float64, want time.Duration) {
			t.Helper()
			if got := c.Owe("a", n, time.Minute); got != want {
				t.Errorf("it waits %v for %v more, want %v", got, n, want)
			}
		}
		owe(10, 0)
		owe(2, time.Second)
		time.Sleep(500 * time.Millisecond)
		owe(0, 500*time.Millisecond)
		owe(1, time.Second)
		owe(1000, time.Minute)
		time.Sleep(time.Minute)
		owe(0, 0)
		if c.Spend("a", 1) || !c.Spend("b", 1) {
			t.Error("it spends what it owes, or others owe it")
		}
	})
}
