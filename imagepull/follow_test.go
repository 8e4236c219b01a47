package imagepull

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/ota/api"
)

// The lines of a watch, until its last.
func TestFollow(t *testing.T) {
	tests := map[string]struct {
		image string
		then  func(t *testing.T, n *node)
		lines string
	}{
		"until it is ready": {"app", func(*testing.T, *node) {}, "[Pulling: app=Pulling Ready: app=Ready]"},
		"until it is cancelled": {"app", func(t *testing.T, n *node) {
			if _, err := n.Cancel(web1); err != nil {
				t.Fatal(err)
			}
		}, "[Pulling: app=Pulling Cancelled: app=Pulling]"},
		"until there is another target": {"app", func(_ *testing.T, n *node) {
			n.cloud.set(oldPod("web-1", "v3", "app:3"))
		}, "[Pulling: app=Pulling Superseded: app=Pulling]"},
		"until it can never be pulled": {"A:B", func(*testing.T, *node) {}, "[Pulling: A:B=Pulling Failed: A:B=Failed]"},
		"until the hub stops":          {"app", func(_ *testing.T, n *node) { n.stop() }, "[Pulling: app=Pulling]"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			onNode(t, func(t *testing.T, n *node) {
				n.engine.fail["A:B"] = engineapi.NewError(engineapi.InvalidImageName, errors.New("no name"))
				n.wanted(t, "web-1", "v2", tt.image)
				synctest.Wait()
				var lines []string
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					n.Follow(context.Background(), web1, time.Millisecond, func(s api.ImagePull) bool {
						if line := describe(s); !slices.Contains(lines, line) {
							lines = append(lines, line)
						}
						return true
					})
				}()
				synctest.Wait()
				tt.then(t, n)
				<-ended
				want(t, "lines", fmt.Sprint(lines), tt.lines)
			})
		})
	}
}
