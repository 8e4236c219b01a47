package limits

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestEachCallerSpendsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCosts(10, 2)
		spend := func(who string, want int) {
			t.Helper()
			n := 0
			for range 100 {
				if c.Spend(who, 1, 0) {
					n++
				}
			}
			if n != want || c.Wait(who) == 0 {
				t.Errorf("%s spends %d, want %d, and may spend more after %v", who, n, want, c.Wait(who))
			}
		}
		spend("a", 10)
		spend("b", 10)
		time.Sleep(3 * time.Second)
		spend("a", 6)
		c.Spend("a", -1, 0)
		spend("a", 1)
	})
}

func TestWhatIsOwedIsPaidInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCosts(10, 2)
		owe := func(n float64, may bool, want time.Duration) {
			t.Helper()
			if c.Spend("a", n, time.Minute) != may || c.Wait("a") != want {
				t.Errorf("after %v more it waits %v, want %v", n, c.Wait("a"), want)
			}
		}
		owe(9, true, 0)
		owe(2, true, time.Second)
		time.Sleep(500 * time.Millisecond)
		owe(1, true, time.Second)
		owe(200, true, 101*time.Second)
		owe(1, false, 101*time.Second)
		time.Sleep(101 * time.Second)
		owe(1, true, 500*time.Millisecond)
	})
}

func TestThoseThatHaveSpentNothingAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCosts(10, 2)
		for i := range 10_000 {
			c.Spend(fmt.Sprint(i), 1, 0)
			time.Sleep(time.Millisecond)
		}
		if n := len(c.spent); n > 2*500+32 { // one is forgotten after half a second
			t.Errorf("%d are known", n)
		}
	})
}
