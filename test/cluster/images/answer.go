package images

import (
	"net/http"
)

// answerChunk is how much of an answer is sent between two looks at the rate and
// at where it is to be cut.
const answerChunk = 16 << 10

// answer is the answer to one request: counted, at the registry's rate, and cut
// where that has been asked for.
type answer struct {
	http.ResponseWriter
	registry *Registry
	request  *http.Request
	entry    *Request
	status   int  // 0 until the header is written
	cut      *cut // nil: none
}

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
		digest := ""
		if status < http.StatusMultipleChoices {
			digest = a.Header().Get("Docker-Content-Digest")
		}
		a.registry.traffic.answered(a.entry, status, digest)
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	sent := 0
	for sent < len(p) {
		chunk := p[sent:min(sent+answerChunk, len(p))]
		if a.cut != nil {
			chunk = chunk[:min(int64(len(chunk)), a.cut.after)]
		}
		if err := a.registry.trouble.pace(a.request.Context(), len(chunk)); err != nil {
			return sent, err
		}
		n, err := a.ResponseWriter.Write(chunk)
		sent += n
		a.registry.traffic.sent(a.entry, n)
		if err != nil {
			return sent, err
		}
		if a.cut == nil {
			continue
		}
		if a.cut.after -= int64(n); a.cut.after == 0 {
			return sent, a.cut.make(a.ResponseWriter, a.request)
		}
	}
	return sent, nil
}

// refuse answers with an error in the form of the distribution specification.
func refuse(w http.ResponseWriter, code int, header http.Header) {
	for name, values := range header {
		w.Header()[http.CanonicalHeaderKey(name)] = values
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(`{"errors":[{"code":"` + errorCodes[code] + `","message":"` + http.StatusText(code) + `"}]}`))
}

// errorCodes are those of the specification.
var errorCodes = map[int]string{
	http.StatusUnauthorized:    "UNAUTHORIZED",
	http.StatusForbidden:       "DENIED",
	http.StatusNotFound:        "NAME_UNKNOWN",
	http.StatusTooManyRequests: "TOOMANYREQUESTS",
}
