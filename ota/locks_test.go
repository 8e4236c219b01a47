package ota

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/types"
)

func TestLocks(t *testing.T) {
	a := types.NamespacedName{Namespace: "default", Name: "a"}
	b := types.NamespacedName{Namespace: "default", Name: "b"}

	t.Run("the second waits for the first", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var locks podLocks
			unlock, _ := locks.lock(t.Context(), a)
			entered := false
			go func() {
				unlock, _ := locks.lock(t.Context(), a)
				entered = true
				unlock()
			}()
			synctest.Wait()
			if entered {
				t.Error("two hold the lock of one pod")
			}
			unlock()
			synctest.Wait()
			if !entered {
				t.Error("the second never got the lock")
			}
			if len(locks.locks) != 0 {
				t.Errorf("%d locks remain, want none", len(locks.locks))
			}
		})
	})

	t.Run("pods do not wait for each other", func(t *testing.T) {
		var locks podLocks
		unlockA, _ := locks.lock(t.Context(), a)
		unlockB, err := locks.lock(t.Context(), b)
		if err != nil {
			t.Fatalf("lock b: %v", err)
		}
		unlockA()
		unlockB()
	})

	t.Run("one that gives up leaves nothing behind", func(t *testing.T) {
		var locks podLocks
		unlock, _ := locks.lock(t.Context(), a)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := locks.lock(ctx, a); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
		unlock()
		if len(locks.locks) != 0 {
			t.Errorf("%d locks remain, want none", len(locks.locks))
		}
	})
}
