package fuzzcache

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// objects is how many names there are of each resource in each namespace.
const objects = 14

// still is how many widgets there are besides in each namespace that nobody writes: what is
// read of them at one resourceVersion changes with the default of their kind.
const still = 3

func nameOf(r *resource, i int) string { return r.name[:1] + "-" + strconv.Itoa(i) }

// body is an object, with a value and labels that are others each time.
func (w *world) body(r *rand.Rand, res *resource, namespace, name, write string) map[string]any {
	labels := map[string]string{}
	if n := r.IntN(4); n > 0 {
		labels[tier] = []string{"x", "y", "z"}[n-1]
	}
	metadata := map[string]any{"name": name, "namespace": namespace, "labels": labels, "annotations": map[string]string{mark: write}}
	value := write + strings.Repeat("-", r.IntN(1<<r.IntN(11)))
	switch res {
	case pods:
		node := w.hub.Name
		if r.IntN(3) == 0 {
			node = "elsewhere"
		}
		grace := 0
		return map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": map[string]any{
			"nodeName": node, "terminationGracePeriodSeconds": grace, "automountServiceAccountToken": false,
			"containers":  []any{map[string]any{"name": "app", "image": "registry.example.com/app:" + write}},
			"tolerations": []any{map[string]any{"operator": "Exists"}},
		}}
	case widgets:
		return map[string]any{"apiVersion": group + "/v1", "kind": "Widget", "metadata": metadata, "spec": map[string]any{"value": value}}
	case secrets:
		return map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": map[string]string{"value": value}}
	}
	return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": map[string]string{"value": value}}
}

// write is one write: of a client through the hub, or straight at an apiserver.
func (c *client) write(ctx context.Context, r *rand.Rand) {
	res, namespace, name := c.anObject(r)
	write := fmt.Sprintf("%s-%d", c.name, c.w.writes.Add(1))
	path := res.path(namespace) + "/" + name
	switch n := r.IntN(20); {
	case n < 5:
		c.wrote(ctx, "POST", res, res.path(namespace), write, asJSON, c.w.body(r, res, namespace, name, write))
	case n < 7 && res != pods:
		c.wrote(ctx, "PUT", res, path, write, asJSON, c.w.body(r, res, namespace, name, write))
	case n < 13:
		c.wrote(ctx, "PATCH", res, path, write, "application/merge-patch+json", c.patch(r, res, write))
	case n < 15:
		// Nobody may ever see this.
		dry := path + "?" + []string{"dryRun=All", "dr%79Run=All", "fieldManager=a&dryRun=All"}[r.IntN(3)]
		if a := c.send(ctx, "PATCH", dry, "application/merge-patch+json", c.patch(r, res, "dry-run-"+write)); a.code == http.StatusOK {
			c.w.did("dry runs")
		}
	case n < 18:
		c.remove(ctx, res, namespace, name, path)
	case n < 19:
		c.remove(ctx, res, namespace, name, path)
		c.wrote(ctx, "POST", res, res.path(namespace), write, asJSON, c.w.body(r, res, namespace, name, write))
	case r.IntN(4) == 0:
		selector := url.Values{"labelSelector": {tier + "=z"}}
		if a := c.send(ctx, "DELETE", res.path(namespace)+"?"+selector.Encode(), asJSON, nil); a.code == http.StatusOK {
			c.w.did("deletions of collections")
		}
	}
}

// patch changes labels, or what is in an object.
func (c *client) patch(r *rand.Rand, res *resource, write string) map[string]any {
	metadata := map[string]any{"annotations": map[string]string{mark: write}}
	body := map[string]any{"metadata": metadata}
	switch {
	case r.IntN(2) == 0:
		labels := map[string]any{tier: nil}
		if n := r.IntN(4); n > 0 {
			labels[tier] = []string{"x", "y", "z"}[n-1]
		}
		metadata["labels"] = labels
	case res == configMaps:
		body["data"] = map[string]string{"value": write + strings.Repeat("+", r.IntN(200))}
	case res == secrets:
		body["stringData"] = map[string]string{"value": write + strings.Repeat("+", r.IntN(200))}
	case res == widgets:
		body["spec"] = map[string]string{"value": write + strings.Repeat("+", r.IntN(200))}
	}
	return body
}

func (c *client) send(ctx context.Context, method, path, contentType string, object any) *answer {
	var body []byte
	if object != nil {
		var err error
		if body, err = json.Marshal(object); err != nil {
			panic(err) // maps of strings
		}
	}
	a := c.do(ctx, method, path, asJSON, contentType, body)
	if a.code == 0 || a.code >= http.StatusInternalServerError {
		return a
	}
	if a.code == http.StatusOK { // what was written was shown
		c.sight.allow(strings.Split(path, "?")[0], a.ended)
	}
	c.usual(ctx, method+" "+path, a, http.StatusOK, http.StatusCreated, http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity, http.StatusForbidden)
	return a
}

// wrote makes a write that is answered with the object that it has made.
func (c *client) wrote(ctx context.Context, method string, res *resource, path, write, contentType string, object any) {
	a := c.send(ctx, method, path, contentType, object)
	if a.err != nil || a.code != http.StatusOK && a.code != http.StatusCreated {
		return
	}
	c.w.did("writes by clients")
	got, err := decodeState(a.body, 0)
	if err != nil {
		c.w.report("the answer to a write that cannot be read", "%s: %s %s: %v: %v", c.name, method, path, err, a)
		return
	}
	if got.write != write {
		c.w.report("the answer to another write", "%s: %s %s: %v, want %s", c.name, method, path, got, write)
		return
	}
	c.sight.allow(res.path(got.namespace)+"/"+got.name, a.ended)
	c.sight.raise(c.sight.objects, objectKey(res.name, got.key()), got.rev, a.began, a.ended)
}

func (c *client) remove(ctx context.Context, res *resource, namespace, name, path string) {
	a := c.send(ctx, "DELETE", path, asJSON, map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0})
	if a.err != nil || a.code != http.StatusOK {
		return
	}
	c.w.did("deletions by clients")
	var deleted struct {
		Metadata struct{ UID string }
		Details  struct{ UID string }
	}
	if json.Unmarshal(a.body, &deleted) == nil {
		c.gone(res, namespace+"/"+name, deleted.Metadata.UID+deleted.Details.UID, a.began, a.ended)
	}
}

// writeDirectly writes straight at the apiservers until ctx ends.
func (w *world) writeDirectly(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		c := w.direct[r.IntN(len(w.direct))]
		c.write(ctx, r)
		pause(ctx, time.Duration(r.IntN(80))*time.Millisecond)
	}
}
