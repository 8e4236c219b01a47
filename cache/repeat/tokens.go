package repeat

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/identity"
	"github.com/edgehub-io/edgehub/cache/quota"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// tokens are the answers to TokenRequests: tokens of service accounts.
type tokens struct{ *kept }

// A kubelet with 250 pods has some 500 tokens, of 2,000 bytes. A pod without its token does not start
// again, so the node's have bounds of their own. 400 days is longer than any token is valid.
func newTokens(a *Answers) *tokens {
	return &tokens{&kept{
		answers: a, name: "token", entries: map[string]*entry{}, bounds: quota.Bounds{Count: 2000, Bytes: 16 << 20},
		nodeApart: true, writeEvery: 24 * time.Hour, lasts: 400 * 24 * time.Hour,
	}}
}

var (
	tokenRequest = wire.TypeMeta{APIVersion: authenticationv1.SchemeGroupVersion.String(), Kind: "TokenRequest"}

	errNoToken     = errors.New("there is no token in the answer")
	errNeverIssued = errors.New("no such token was ever issued through this hub")
)

func (*tokens) wants(r *Request) bool {
	i := r.Info
	return r.HTTP.Method == http.MethodPost && i.APIGroup == "" && i.Resource == "serviceaccounts" && i.Subresource == "token"
}

func (p *tokens) keep(r *Request, res *Response) error {
	if res.Code != http.StatusCreated {
		return nil
	}
	asked, err := requested(r)
	if err != nil {
		return err
	}
	issued, err := decode[*authenticationv1.TokenRequest](tokenRequest, res.Body, res.Header.Get("Content-Type"))
	if err != nil {
		return err
	}
	if issued.Status.Token == "" {
		return fmt.Errorf("keep the token of service account %s/%s: %w", r.Info.Namespace, r.Info.Name, errNoToken)
	}
	p.learn(r, asked, issued)
	_, body, err := convert.EncodeBody(wire.Protobuf.MediaType(), issued)
	if err != nil {
		return err
	}
	p.answers.mu.Lock()
	defer p.answers.mu.Unlock()
	p.put(p.key(r, asked), entry{record: record{User: r.User}}, body)
	return nil
}

func requested(r *Request) (*authenticationv1.TokenRequest, error) {
	body, err := r.Body()
	if err != nil {
		return nil, err
	}
	return decode[*authenticationv1.TokenRequest](tokenRequest, body, r.HTTP.Header.Get("Content-Type"))
}

// learn records the user of a token that an apiserver has issued. The kubelet renews tokens long before
// pods use them, and the cloud may be away by then. A token with audiences is not recorded: services
// other than the apiserver receive it, and must not be able to read as its user. If its audience is the
// apiserver, it is reviewed when it is used.
func (p *tokens) learn(r *Request, asked, issued *authenticationv1.TokenRequest) {
	i := r.Info
	if len(asked.Spec.Audiences) > 0 || r.HTTP.URL.Path != "/api/v1/namespaces/"+i.Namespace+"/serviceaccounts/"+i.Name+"/token" {
		return
	}
	if user, ok := identity.IssuedTo(issued.Status.Token, i.Namespace, i.Name); ok {
		p.answers.opts.Users.Issued(issued.Status.Token, user)
	}
}

// answer returns the token that was last issued to the same user, for the same account, audiences, bound
// object and precondition. The lifetime that was asked for does not count: there is only this token.
func (p *tokens) answer(r *Request) (*Response, error) {
	asked, err := requested(r)
	if err != nil {
		return nil, errNeverIssued
	}
	issued, ok := p.use(r, asked)
	if !ok {
		return nil, errNeverIssued
	}
	return created(r, issued)
}

// use returns a token, and marks it as used.
func (p *tokens) use(r *Request, asked *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, bool) {
	p.answers.mu.Lock()
	defer p.answers.mu.Unlock()
	key := p.key(r, asked)
	e, body, ok := p.get(key)
	if !ok {
		return nil, false
	}
	p.put(key, entry{record: record{User: e.User}}, body)
	return decodeIssued(body)
}

// recall lets the users of the stored tokens be confirmed; see identity.Tokens.Recall.
func (p *tokens) recall() {
	for key := range p.entries {
		if _, body, ok := p.get(key); ok {
			if issued, ok := decodeIssued(body); ok {
				p.answers.opts.Users.Recall(issued.Status.Token)
			}
		}
	}
}

func (p *tokens) key(r *Request, asked *authenticationv1.TokenRequest) string {
	bound := asked.Spec.BoundObjectRef
	if bound == nil {
		bound = &authenticationv1.BoundObjectReference{}
	}
	parts := []string{
		p.name, r.User, r.Info.Namespace, r.Info.Name, string(asked.UID), bound.Kind, bound.Name, string(bound.UID),
	}
	return p.answers.table.Key(append(parts, sorted(asked.Spec.Audiences)...)...)
}

func decodeIssued(body []byte) (*authenticationv1.TokenRequest, bool) {
	issued, err := decode[*authenticationv1.TokenRequest](tokenRequest, body, wire.Protobuf.MediaType())
	return issued, err == nil
}
