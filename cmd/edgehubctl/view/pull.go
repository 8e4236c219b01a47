package view

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/ota/api"
)

// PullView shows the progress of a pre-pull to a person or a program.
type PullView interface {
	// Show is called with each state, and with the same one again as time passes.
	Show(s *api.ImagePull, now time.Time)
	// Note shows a problem with the hub; "" clears it.
	Note(text string)
}

// NewPullView returns a view on out, with problems on errs. asJSON has it print each state as the hub sends it.
func NewPullView(out, errs io.Writer, asJSON bool) PullView {
	size, isTerminal := cli.Terminal(out)
	switch {
	case asJSON:
		return &jsonView{Notes: cli.Notes{W: errs}, states: cli.Notes{W: out}}
	case isTerminal:
		return &pictureView{screen: cli.NewScreen(out, size), size: size, meters: meters{}}
	default:
		return &lineView{Notes: cli.Notes{W: errs}, out: out, said: map[string]string{}}
	}
}

// jsonView prints each change on a line of its own, as the hub sends it.
type jsonView struct {
	cli.Notes
	states cli.Notes
}

func (v *jsonView) Show(s *api.ImagePull, _ time.Time) {
	b, err := json.Marshal(s)
	if err != nil {
		panic("encode a pre-pull: " + err.Error()) // it was decoded from JSON
	}
	v.states.Note(string(b))
}

// pictureView is kept up to date in place.
type pictureView struct {
	screen *cli.Screen
	size   func() (width, height int)
	meters meters
	text   string // of the last state
	noted  string
}

func (v *pictureView) Show(s *api.ImagePull, now time.Time) {
	v.meters.count(s, now)
	width, _ := v.size()
	v.text = v.meters.picture(s, now, width)
	v.draw()
}

func (v *pictureView) Note(text string) {
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

// lineView prints a line when an image's state changes, and at each tenth of its bytes.
type lineView struct {
	cli.Notes
	out  io.Writer
	said map[string]string // about each image
}

func (v *lineView) Show(s *api.ImagePull, now time.Time) {
	for _, i := range s.Images {
		// The time until the next attempt is not part of kind: it changes each second.
		kind := strings.Join([]string{string(i.State), fmt.Sprint(i.Attempts), i.LastError}, " ")
		if i.State == api.Pulling && i.BytesTotal > 0 {
			kind += fmt.Sprint(cli.Percent(i.BytesDone, i.BytesTotal) / 10)
		}
		if v.said[i.Image] != kind {
			fmt.Fprintf(v.out, "%s: %s\n", i.Image, describeAll(&i, now))
			v.said[i.Image] = kind
		}
	}
}

// meter measures the rate of one image's download. The hub reports how many bytes there are; each
// client measures the rate itself.
type meter struct{ samples []sample }

type sample struct {
	at   time.Time
	done int64
}

const (
	// meterSpan is how long a sample counts: long enough for a line that stutters.
	meterSpan = 10 * time.Second
	// meterLeast is how long bytes are counted before a rate is shown.
	meterLeast = 900 * time.Millisecond
)

func (m *meter) add(at time.Time, done int64) {
	if n := len(m.samples); n > 0 && done < m.samples[n-1].done {
		m.samples = nil // an attempt began anew
	}
	m.samples = append(m.samples, sample{at, done})
	for len(m.samples) > 2 && at.Sub(m.samples[1].at) >= meterSpan {
		m.samples = m.samples[1:]
	}
}

// rate is in bytes per second; false while there are too few samples.
func (m *meter) rate() (float64, bool) {
	if len(m.samples) == 0 {
		return 0, false
	}
	first, last := m.samples[0], m.samples[len(m.samples)-1]
	if took := last.at.Sub(first.at); took >= meterLeast {
		return float64(last.done-first.done) / took.Seconds(), true
	}
	return 0, false
}

// meters are those of the images that are being pulled, by image.
type meters map[string]*meter

// count must be called before a state is shown.
func (m meters) count(s *api.ImagePull, now time.Time) {
	for _, i := range s.Images {
		if i.State != api.Pulling || i.BytesTotal == 0 {
			delete(m, i.Image)
			continue
		}
		if m[i.Image] == nil {
			m[i.Image] = &meter{}
		}
		m[i.Image].add(now, i.BytesDone)
	}
}

// picture has two lines for each image.
func (m meters) picture(s *api.ImagePull, now time.Time, width int) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s: %s of revision %s\n", s.Namespace+"/"+s.Pod, cli.Plural(len(s.Images), "image"), s.Revision)
	for _, i := range s.Images {
		state := Describe(&i, now)
		if i.State == api.Pulling && i.BytesTotal > 0 {
			state = bar(&i, width) + m.speed(&i)
		}
		fmt.Fprintf(&out, "%s\n  %s\n", i.Image, state)
	}
	return out.String()
}

// Sizes of a bar, in columns.
const (
	maxBar = 30
	minBar = 5
	// barText is what may stand beside it.
	barText = len("  [] 100%  1023.9 of 1023.9 MiB  1023.9 MiB/s, 59m59s left")
)

// bar is full only when all is there.
func bar(i *api.Image, width int) string {
	columns := min(maxBar, max(minBar, width-barText))
	n := cli.Percent(i.BytesDone, i.BytesTotal)
	full := n * columns / 100
	return fmt.Sprintf("[%s%s] %3d%%  %s", strings.Repeat("#", full), strings.Repeat(".", columns-full), n, cli.BytesOf(i.BytesDone, i.BytesTotal))
}

// speed formats the rate, and the time left at that rate.
func (m meters) speed(i *api.Image) string {
	rate, ok := m[i.Image].rate()
	switch left := i.BytesTotal - i.BytesDone; {
	case !ok:
		return ""
	case left <= 0:
		return "  unpacking"
	case rate < 1:
		return "  no bytes come in"
	default:
		return fmt.Sprintf("  %s/s, %s left", cli.Size(int64(rate)), cli.Seconds(time.Duration(float64(left)/rate*float64(time.Second))))
	}
}

// Describe returns the state of an image in one line, without its rate.
func Describe(i *api.Image, now time.Time) string {
	switch i.State {
	case api.Ready:
		if i.BytesTotal == 0 {
			return "ready"
		}
		return "ready, " + cli.Size(i.BytesTotal)
	case api.Pulling:
		return cli.Joined("pulling", attempt(i))
	case api.Queued:
		return cli.Joined("queued", attempt(i))
	case api.Failed:
		if i.NextRetry == nil {
			return "failed for good: " + i.LastError
		}
		return fmt.Sprintf("failed, again in %s: %s", cli.Seconds(i.NextRetry.Sub(now)), i.LastError)
	default:
		return strings.ToLower(string(i.State))
	}
}

// describeAll is Describe with how many bytes of an image are there.
func describeAll(i *api.Image, now time.Time) string {
	if i.State != api.Pulling || i.BytesTotal == 0 {
		return Describe(i, now)
	}
	return fmt.Sprintf("%s, %d%%, %s", Describe(i, now), cli.Percent(i.BytesDone, i.BytesTotal), cli.BytesOf(i.BytesDone, i.BytesTotal))
}

func attempt(i *api.Image) string {
	if i.Attempts < 2 {
		return ""
	}
	return fmt.Sprintf("attempt %d", i.Attempts)
}
