package soak_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// changePeriod is the time between two changes of objects in the cloud. Each is sent to
// one watch, twenty or two hundred.
const changePeriod = 250 * time.Millisecond

// change changes objects straight at the apiserver, whether the hub can see it or not.
func (w *world) change(ctx context.Context) error {
	r := rand.New(rand.NewPCG(2, 0))
	short := map[string]bool{} // ConfigMaps that come and go
	for n := 0; pause(ctx, changePeriod); n++ {
		if err := w.changeOne(ctx, r, short, n); err != nil && ctx.Err() == nil {
			return fmt.Errorf("change an object: %w", err)
		}
	}
	return nil
}

func (w *world) changeOne(ctx context.Context, r *rand.Rand, short map[string]bool, n int) error {
	maps := w.admin.CoreV1().ConfigMaps(namespace)
	patch := []byte(fmt.Sprintf(`{"metadata":{"annotations":{"change":"%d"}}}`, n))
	merge := types.MergePatchType
	switch r.IntN(8) {
	case 0:
		_, err := w.admin.CoreV1().Services(namespace).Patch(ctx, "service-"+strconv.Itoa(r.IntN(services)), merge, patch, metav1.PatchOptions{})
		return err
	case 1, 2: // its node knows
		_, err := maps.Patch(ctx, podName(r.IntN(pods)), merge, patch, metav1.PatchOptions{})
		return err
	case 3, 4: // it comes, or goes
		group := r.IntN(accounts)
		name := fmt.Sprintf("short-%d-%d", group, r.IntN(3))
		if short[name] {
			delete(short, name)
			return maps.Delete(ctx, name, metav1.DeleteOptions{})
		}
		short[name] = true
		_, err := maps.Create(ctx, newConfigMap(name, group), metav1.CreateOptions{})
		return err
	}
	_, err := maps.Patch(ctx, groupName(r.IntN(accounts), r.IntN(perGroup)), merge, patch, metav1.PatchOptions{})
	return err
}
