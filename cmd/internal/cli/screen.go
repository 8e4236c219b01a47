package cli

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"
)

// Sizes of a terminal that does not report its size.
const (
	defaultWidth  = 80
	defaultHeight = 24
)

// Terminal returns how large w is now, and false when w is no terminal.
func Terminal(w io.Writer) (size func() (width, height int), ok bool) {
	file, isFile := Raw(w).(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return nil, false
	}
	return func() (int, int) {
		width, height, err := term.GetSize(int(file.Fd()))
		if err != nil || width <= 0 || height <= 0 {
			return defaultWidth, defaultHeight
		}
		return width, height
	}, true
}

// Width returns the width of w in columns, and 0 when w is no terminal.
func Width(w io.Writer) int {
	size, isTerminal := Terminal(w)
	if !isTerminal {
		return 0
	}
	width, _ := size()
	return width
}

// Screen keeps one text on a terminal up to date. It is not safe for concurrent
// use.
type Screen struct {
	w     io.Writer
	size  func() (width, height int)
	lines int // of the text that is there
}

// NewScreen returns a screen on w, which is a terminal as large as size returns, asked
// before each drawing: windows are resized. What it draws is made safe, as Safe does.
func NewScreen(w io.Writer, size func() (width, height int)) *Screen {
	return &Screen{w: Raw(w), size: size}
}

// Control sequences of ECMA-48, which every terminal of the last decades knows.
const (
	cursorUp   = "\x1b[%dA\r"
	clearBelow = "\x1b[J"
)

// Draw replaces what it drew before by text, cut to the terminal: wrapped lines would not be
// counted, and lines that have scrolled away cannot be replaced.
func (s *Screen) Draw(text string) {
	width, height := s.size()
	lines := slices.Collect(strings.Lines(text))
	if room := max(1, height-1); len(lines) > room { // the cursor has the last line
		lines = append(lines[:room-1], fmt.Sprintf("... and %d more lines", len(lines)-room+1))
	}
	var out strings.Builder
	if s.lines > 0 {
		fmt.Fprintf(&out, cursorUp, s.lines)
	}
	out.WriteString(clearBelow)
	for _, line := range lines {
		out.WriteString(cut(printable(strings.TrimSuffix(line, "\n")), width) + "\n")
	}
	s.lines = len(lines)
	_, _ = io.WriteString(s.w, out.String()) // nobody is left to see it
}

// cut shortens s to width columns; three dots mark the cut.
func cut(s string, width int) string {
	if Columns(s) <= width {
		return s
	}
	const more = "..."
	return start(s, width-len(more)) + more
}

// Notes prints a line unless it repeats the one before.
type Notes struct {
	W    io.Writer
	last string
}

// Note prints text, if there is any.
func (n *Notes) Note(text string) {
	if text != "" && text != n.last {
		fmt.Fprintln(n.W, text)
		n.last = text
	}
}
