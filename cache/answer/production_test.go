package answer

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/cache/identity"
)

// #18: the accounts of a namespace have no more turns by being many.
func TestManyAccountsOfANamespaceDelayNobodyElsesAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProduction()
		done := make(chan string, 100)
		var all sync.WaitGroup
		ask := func(user string) {
			all.Go(func() {
				err := p.run(t.Context(), user, func(*Workspace) error { time.Sleep(time.Second); done <- user; return nil })
				if err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		for i := range 50 {
			ask(accountIn("flood", fmt.Sprint("a", i)))
		}
		began, victim := time.Now(), accountIn("victims", "a")
		ask(victim)
		for user := <-done; user != victim; user = <-done {
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("the victim's piece takes %v", took)
		}
		all.Wait()
	})
}

// accountIn is the key of a service account.
func accountIn(namespace, name string) string {
	return identity.User{Name: "system:serviceaccount:" + namespace + ":" + name, UID: "1"}.Key()
}
