package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/edgehub-io/edgehub/cmd/internal/screen"
	"github.com/edgehub-io/edgehub/ota/nodeapi"
)

// pullView shows how a pre-pull goes on, to a person or to a program.
type pullView interface {
	// show is called with each state, and with the same one again as time passes.
	show(s *nodeapi.ImagePull, now time.Time)
	// note says what is with the hub, or "" when nothing is any more.
	note(text string)
}

func (c *call) pullView() pullView {
	size, isTerminal := screen.Terminal(c.out)
	switch {
	case c.output == "json":
		return &jsonView{notes: notes{w: c.err}, out: c.out}
	case isTerminal:
		return &pictureView{screen: screen.New(c.out, size), size: size, progress: newProgress()}
	default:
		return &lineView{notes: notes{w: c.err}, out: c.out, said: map[string]string{}}
	}
}

// notes go to a log, once: a hub that does not come up is no news every second.
type notes struct {
	w    io.Writer
	last string
}

func (n *notes) note(text string) {
	if text != "" && text != n.last {
		fmt.Fprintln(n.w, text)
		n.last = text
	}
}

// jsonView prints each change on a line of its own, as the hub says it.
type jsonView struct {
	notes
	out  io.Writer
	last string
}

func (v *jsonView) show(s *nodeapi.ImagePull, _ time.Time) {
	b, err := json.Marshal(s)
	if err != nil {
		panic("encode a pre-pull: " + err.Error()) // it was decoded from JSON
	}
	if line := string(b); line != v.last {
		fmt.Fprintln(v.out, line)
		v.last = line
	}
}

// pictureView is kept up to date in place.
type pictureView struct {
	screen   *screen.Screen
	size     func() (width, height int)
	progress *progress
	text     string // of the last state
	noted    string
}

func (v *pictureView) show(s *nodeapi.ImagePull, now time.Time) {
	v.progress.count(s, now)
	width, _ := v.size()
	v.text = v.progress.picture(s, now, width)
	v.draw()
}

func (v *pictureView) note(text string) {
	v.noted = text
	v.draw()
}

func (v *pictureView) draw() {
	text := v.text
	if v.noted != "" {
		text += v.noted + "\n"
	}
	v.screen.Draw(text)
}

// lineView prints a line when an image's state has changed, or another tenth of it is
// there.
type lineView struct {
	notes
	out  io.Writer
	said map[string]string // about each image
}

func (v *lineView) show(s *nodeapi.ImagePull, now time.Time) {
	for _, i := range s.Images {
		// What it says that is no news: how long until the next attempt.
		kind := strings.Join([]string{string(i.State), fmt.Sprint(i.Attempts), i.LastError}, " ")
		line := describe(&i, now)
		if i.State == nodeapi.Pulling && i.BytesTotal > 0 {
			n := percent(i.BytesDone, i.BytesTotal)
			kind += fmt.Sprint(n / 10)
			line += fmt.Sprintf(", %d%%, %s", n, bytesOf(i.BytesDone, i.BytesTotal))
		}
		if v.said[i.Image] != kind {
			fmt.Fprintf(v.out, "%s: %s\n", i.Image, line)
			v.said[i.Image] = kind
		}
	}
}
