package hub

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

func answersAll(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }

// The file tells when an outage began to a hub that starts within it, and it is the file alone: the tests date
// it back.
func TestOfflineSinceSurvivesARestart(t *testing.T) {
	for name, tt := range map[string]struct {
		online bool                           // when the hub stops
		moment func(f *outageFile) *time.Time // that it writes then
	}{
		"it stops in the outage":                 {false, func(f *outageFile) *time.Time { return &f.Lost }},
		"it stops while the cloud still answers": {true, func(f *outageFile) *time.Time { return &f.Answered }},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, answersAll)
			h, stop := n.start(t)
			n.askCloud(t, "/version")
			before := time.Now()
			if !tt.online {
				n.loseCloud(t, h)
			}
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			n.api.Close()
			var file outageFile
			text, err := os.ReadFile(n.path("root/outage.json"))
			if err == nil {
				err = json.Unmarshal(text, &file)
			}
			moment := tt.moment(&file)
			if err != nil || moment.Before(before) || moment.After(time.Now()) {
				t.Fatalf("the file is %s: %v", text, err)
			}
			*moment = moment.Add(-time.Hour)
			if text, err = json.Marshal(file); err != nil {
				t.Fatal(err)
			}
			n.write(t, "root/outage.json", text)

			for range 2 {
				h, stop = n.start(t)
				n.awaitOffline(t, h)
				state := h.state.ofCache().Cloud
				if !state.Since.Equal(*moment) || !state.APIServers[0].Since.Equal(*moment) || !strings.Contains(h.cloud.offline(), moment.Format(time.RFC3339)) {
					t.Errorf("it is offline since %s, and /debug/cache says %+v; want %v", h.cloud.offline(), state, moment)
				}
				if err := stop(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// The file is removed when the cloud answers, and a malformed file does no harm.
func TestAnOutageThatIsOverIsRemoved(t *testing.T) {
	for name, text := range map[string]string{
		"an outage":            `{"lost":"2024-05-06T07:08:09Z"}`,
		"the last answer":      `{"answered":"2024-05-06T07:08:09Z"}`,
		"a wrong clock":        `{"lost":"2093-05-06T07:08:09Z"}`,
		"no JSON":              `{"lost":`,
		"nothing":              ``,
		"nothing that is ours": `{"a":1}`,
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, answersAll)
			if err := os.Mkdir(n.path("root"), 0o700); err != nil {
				t.Fatal(err)
			}
			n.write(t, "root/outage.json", []byte(text))
			h, _ := n.start(t)
			n.askCloud(t, "/version")
			if strings.Contains(text, "20") {
				until(t, "the file is gone", func() bool {
					_, err := os.Stat(n.path("root/outage.json"))
					return errors.Is(err, fs.ErrNotExist)
				})
			}
			lost := time.Now().Truncate(time.Second)
			n.loseCloud(t, h)
			if since := h.cloud.upstream.State().Since; since.Before(lost) {
				t.Errorf("it is away since %v, and was there at %v", since, lost)
			}
		})
	}
}
