package binding

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/proxy/upstream"
)

const (
	// checkTimeout bounds a check, on its slow first connection: an apiserver that takes longer has not answered.
	checkTimeout = time.Minute
	// maxAnswer is more than any Node has, in bytes.
	maxAnswer = 2 << 20
	// onlyMetadata spares what a Node lists of images, where the apiserver can do that.
	onlyMetadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
)

// errNoAnswer is wrapped by errors after which the same question may be answered: an apiserver that is starting.
var errNoAnswer = errors.New("it does not say which cluster it is")

// check asks the cloud which cluster it is, and records the verdict. lost is from before. Its error is one of a cloud that cannot be
// reached.
func (b *Binding) check(lost <-chan struct{}) error {
	seen, err := b.look()
	cas := KeysOf(b.CAs())
	lostAgain, isUnreachable := errors.AsType[*upstream.UnreachableError](err)

	b.mu.Lock()
	known, before := b.record, b.record
	verdict := Judge(known, seen)
	switch verdict {
	case Same:
		known = known.learn(seen, cas)
		b.withheld = ""
	case Another:
		known.Another = true
		b.withheld = ErrAnother.Error()
	case Doubtful:
		known.Doubted = true
		b.withheld = doubtful
	}
	b.record = known
	news := verdict != b.logged
	b.logged = verdict
	if verdict != Unknown || !isUnreachable {
		b.checked, b.settled = lost, verdict != Unknown || err == nil
		b.asked = time.Now()
	}
	b.mu.Unlock()

	if !known.equal(before) || b.unwritten { // only one check at a time is under way
		err := known.write(b.File)
		if b.unwritten = err != nil; b.unwritten {
			b.Logger.Warn("it cannot be written down of which cluster the hub's data is", "file", b.File, "err", err)
		}
	}
	if news {
		b.log(verdict, before, seen, err)
	}
	b.ended(known.Another && !b.unwritten) // a start with the record of before would set nothing aside
	switch {
	case verdict == Another:
		return unreachable(ErrAnother)
	case verdict == Unknown && isUnreachable && !lostAgain.Refused():
		return err
	}
	return nil
}

// ended tells everybody who waits that a check has ended, and Run that the hub is to end.
func (b *Binding) ended(isAnother bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flight = nil
	close(b.changed)
	b.changed = make(chan struct{})
	if isAnother && !isClosed(b.another) {
		close(b.another)
	}
}

func (b *Binding) log(verdict Verdict, known Record, seen Seen, err error) {
	uids := []any{"service", seen.Service, "service-before", known.Service, "node", seen.Node, "node-before", known.UID}
	switch verdict {
	case Same:
		b.Logger.Info("the cloud is the cluster that the hub's data is of", uids...)
	case Another:
		b.Logger.Error("the cloud is another cluster: Service default/kubernetes and the Node have other UIDs than those that the hub's data is of. The hub starts anew, and sets aside what it has", uids...)
	case Doubtful:
		b.Logger.Warn("the cloud may be another cluster: Service default/kubernetes has another UID, and there is no Node of this name. What is cached is not served, and what waits for the cloud is not sent, until kubelet has registered its Node, which it does when it starts", uids...)
	case Unknown:
		if lost, ok := errors.AsType[*upstream.UnreachableError](err); !ok || !lost.Refused() {
			b.Logger.Warn("it is not known whether the cloud is the cluster that the hub's data is of; it is taken for that", append(uids, "err", err)...)
		}
	}
}

// renew asks again if that is due: no verdict yet, an hour has passed, or the CAs are others.
func (b *Binding) renew(ctx context.Context) {
	cas := KeysOf(b.CAs())
	b.mu.Lock()
	every := renewEvery
	if b.logged == Unknown || b.record.Service == "" || b.record.UID == "" {
		every = renewUnknown
	}
	due := !b.maySendLocked() || time.Since(b.asked) >= every || !slices.Equal(cas, b.record.CAs)
	var f *flight
	if due && !isClosed(b.Lost(b.node)) {
		f = b.checkLocked()
	}
	b.mu.Unlock()
	if f == nil {
		return
	}
	select {
	case <-f.done:
	case <-ctx.Done():
	}
}

// look reads both objects. Its error is one that wraps errNoAnswer, or is an *upstream.UnreachableError, and both may be seen with
// it.
func (b *Binding) look() (Seen, error) {
	ctx, cancel := context.WithTimeout(b.node, checkTimeout)
	defer cancel()
	var seen Seen
	var service, node error
	var both sync.WaitGroup
	both.Go(func() {
		var missing bool
		seen.Service, missing, service = b.uid(ctx, "/api/v1/namespaces/default/services/kubernetes", "kubernetes")
		if missing { // an apiserver makes it once it is ready, and takes requests before that
			service = fmt.Errorf("%w: it has no Service default/kubernetes yet", errNoAnswer)
		}
	})
	name := b.record.Node // never changes
	both.Go(func() { seen.Node, seen.NoNode, node = b.uid(ctx, "/api/v1/nodes/"+name, name) })
	both.Wait()
	return seen, errors.Join(service, node)
}

// uid returns the UID of an object. missing is true if the apiserver answers that there is none; with neither and no error the node may
// not read it.
func (b *Binding) uid(ctx context.Context, path, name string) (uid types.UID, missing bool, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody)
	if err != nil {
		return "", false, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	r.Header.Set("Accept", onlyMetadata)
	r.Header.Set("User-Agent", "edgehub")
	res, err := b.Upstream.RoundTrip(r)
	if err != nil {
		if _, ok := errors.AsType[*upstream.UnreachableError](err); ok {
			return "", false, err
		}
		return "", false, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return "", false, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	switch mediaType, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); {
	case mediaType != "application/json": // what stands between answers with a page
	case res.StatusCode == http.StatusOK:
		var object metav1.PartialObjectMetadata
		if json.Unmarshal(body, &object) == nil && object.Name == name {
			return object.UID, false, nil
		}
	case res.StatusCode == http.StatusNotFound:
		var status metav1.Status
		return "", json.Unmarshal(body, &status) == nil && status.Reason == metav1.StatusReasonNotFound, nil
	}
	if res.StatusCode >= http.StatusInternalServerError || res.StatusCode == http.StatusTooManyRequests {
		return "", false, fmt.Errorf("%w: it answers %s to GET %s", errNoAnswer, res.Status, path)
	}
	return "", false, nil
}
