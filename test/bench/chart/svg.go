package main

import (
	"fmt"
	"html"
	"strings"
)

// chart is a picture of horizontal bars.
type chart struct {
	name     string // of the file, without theme
	title    string
	subtitle []string // lines
	labels   float64  // width of the labels, left of the bars
	groups   []group
}

// group is bars on one scale.
type group struct {
	heading        string
	bars           []bar
	top            float64   // value at the right end
	ticks          []float64 // nil: no axis
	reference      float64   // a line through all bars; 0: none
	referenceLabel string
}

type bar struct {
	label, note string // note: a second, smaller line
	value       float64
	spread      *[2]float64 // least and most, drawn as a whisker
	text        string      // of value
	rangeText   string      // of spread, below text
	limit       *float64
	limitLabel  string
	isOther     bool // not the hub's
}

// theme is a set of colors. Blue, orange and grey differ for the color-blind, too.
type theme struct {
	name                                                      string
	background, text, muted, grid, hub, other, limit, whisker string
}

func light() theme {
	return theme{
		name: "light", background: "#ffffff", text: "#1f2328", muted: "#59636e", grid: "#d1d9e0",
		hub: "#0969da", other: "#818b98", limit: "#bc4c00", whisker: "#1f2328",
	}
}

func dark() theme {
	return theme{
		name: "dark", background: "#0d1117", text: "#f0f6fc", muted: "#9198a1", grid: "#3d444d",
		hub: "#4493f8", other: "#656c76", limit: "#f0883e", whisker: "#f0f6fc",
	}
}

// Lengths in pixels, at the width at which GitHub shows a page.
const (
	width      = 720
	margin     = 20
	plotRight  = 590 // texts of values are right of it
	rowHeight  = 44
	thickness  = 16 // of a bar
	whiskerCap = 4  // half of it
)

// drawing is an SVG that grows downward.
type drawing struct {
	theme
	strings.Builder
	y    float64 // how far it has grown
	left float64 // where bars begin
}

// draw returns the chart as an SVG file.
func (c *chart) draw(t theme) string {
	d := &drawing{theme: t, y: 32, left: margin + c.labels}
	d.words(margin, d.y, c.title, `font-size="16" font-weight="600"`, t.text)
	for _, line := range c.subtitle {
		d.y += 20
		d.words(margin, d.y, line, "", t.muted)
	}
	d.y += 12
	for i := range c.groups {
		d.group(&c.groups[i])
	}
	height := d.y + margin/2
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %g" width="%d" height="%g" role="img" aria-labelledby="title desc" `+
		`font-family="system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif" font-size="12">
<title id="title">%s</title>
<desc id="desc">%s</desc>
<rect width="%d" height="%g" fill="%s"/>
%s</svg>
`, width, height, width, height, html.EscapeString(c.title), html.EscapeString(c.description()), width, height, t.background, d.String())
}

func (d *drawing) group(g *group) {
	if g.heading != "" {
		d.y += 18
		d.words(margin, d.y, g.heading, `font-size="13" font-weight="600"`, d.text)
		d.y += 8
	}
	x := func(value float64) float64 { return d.left + value/g.top*(plotRight-d.left) }
	height := rowHeight
	if g.bars[0].note == "" {
		height = 26
	}
	top := d.y
	if g.bars[0].limit != nil {
		top += 12 // for the labels of limit and reference
	}
	bottom := top + float64(height*len(g.bars))
	for _, tick := range g.ticks {
		d.line(x(tick), top, x(tick), bottom, d.grid, "")
		d.words(x(tick), bottom+15, fmt.Sprintf("%g", tick), `text-anchor="middle"`, d.muted)
	}
	for i := range g.bars {
		d.bar(&g.bars[i], x, top+float64(height*i)+float64(height)/2)
	}
	if g.reference != 0 {
		d.line(x(g.reference), top-2, x(g.reference), bottom, d.text, `stroke-width="1.5"`)
		d.words(x(g.reference)-3, top-4, g.referenceLabel, `text-anchor="end"`, d.muted)
	}
	d.limits(g, x, top, float64(height))
	d.y = bottom + 4
	if g.ticks != nil {
		d.y += 20
	}
}

// bar draws one bar, with y at half its height.
func (d *drawing) bar(b *bar, x func(float64) float64, y float64) {
	color := d.hub
	if b.isOther {
		color = d.other
	}
	d.twoLines(margin, y, b.label, b.note, `font-size="13"`)
	fmt.Fprintf(d, `<rect x="%g" y="%g" width="%.1f" height="%d" fill="%s"/>`+"\n",
		d.left, y-thickness/2, x(b.value)-d.left, thickness, color)
	if b.spread != nil {
		low, high := x(b.spread[0]), x(b.spread[1])
		fmt.Fprintf(d, `<path d="M%.1f %gH%.1fM%.1f %gv%dM%.1f %gv%d" stroke="%s" stroke-width="1.5" fill="none"/>`+"\n",
			low, y, high, low, y-whiskerCap, 2*whiskerCap, high, y-whiskerCap, 2*whiskerCap, d.whisker)
	}
	d.twoLines(plotRight+14, y, b.text, b.rangeText, `font-size="13" font-weight="600"`)
}

// twoLines writes two lines around y, or one when the second is empty.
func (d *drawing) twoLines(x, y float64, first, second, attributes string) {
	if second == "" {
		d.words(x, y+4, first, attributes, d.text)
		return
	}
	d.words(x, y-3, first, attributes, d.text)
	d.words(x, y+13, second, "", d.muted)
}

// limits draws a line through bars that follow each other and have the same limit.
func (d *drawing) limits(g *group, x func(float64) float64, top, height float64) {
	for first := 0; first < len(g.bars); {
		limit := g.bars[first].limit
		last := first + 1
		for last < len(g.bars) && limit != nil && g.bars[last].limit != nil && *g.bars[last].limit == *limit {
			last++
		}
		if limit != nil {
			at, from := x(*limit), top+height*float64(first)
			d.line(at, from-2, at, top+height*float64(last), d.limit, `stroke-width="2" stroke-dasharray="5 3"`)
			d.words(at+3, from-4, g.bars[first].limitLabel, "", d.limit)
		}
		first = last
	}
}

func (d *drawing) line(x1, y1, x2, y2 float64, color, more string) {
	fmt.Fprintf(d, `<line x1="%.1f" y1="%g" x2="%.1f" y2="%g" stroke="%s" %s/>`+"\n", x1, y1, x2, y2, color, more)
}

func (d *drawing) words(x, y float64, text, attributes, color string) {
	fmt.Fprintf(d, `<text x="%.4g" y="%g" fill="%s" %s>%s</text>`+"\n", x, y, color, attributes, html.EscapeString(text))
}
