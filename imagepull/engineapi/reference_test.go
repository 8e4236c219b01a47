package engineapi

import (
	"errors"
	"testing"
)

const someDigest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestNormalize(t *testing.T) {
	tests := map[string]struct{ image, want string }{
		"a name gets registry, library and tag":  {"nginx", "docker.io/library/nginx:latest"},
		"a name with a tag keeps the tag":        {"nginx:1.27", "docker.io/library/nginx:1.27"},
		"a user's image gets the registry":       {"me/app", "docker.io/me/app:latest"},
		"an image of a registry gets a tag":      {"registry.example.com/app:1", "registry.example.com/app:1"},
		"a registry may have a port":             {"localhost:5000/app", "localhost:5000/app:latest"},
		"the old name of Docker Hub is replaced": {"index.docker.io/library/nginx:1", "docker.io/library/nginx:1"},
		"an image with a digest gets no tag":     {"nginx@" + someDigest, "docker.io/library/nginx@" + someDigest},
		"the digest replaces the tag":            {"nginx:1@" + someDigest, "docker.io/library/nginx@" + someDigest},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got, err := Normalize(tt.image); err != nil || got != tt.want {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
	for name, image := range map[string]string{
		"nothing": "", "capitals": "Nginx:1", "two tags": "a:b:c", "a digest that is too short": "a@sha256:12", "an address": "https://example.com/a",
	} {
		t.Run("not "+name, func(t *testing.T) {
			_, err := Normalize(image)
			failure, ok := errors.AsType[*Error](err)
			if !ok || failure.Reason != InvalidImageName || !failure.Permanent {
				t.Errorf("got %#v", err)
			}
		})
	}
}
