package main

import (
	"errors"
	"fmt"
	"html"
	"regexp"
	"strconv"
	"strings"

	"github.com/edgehub-io/edgehub/test/bench/results"
)

var tableBlock = regexp.MustCompile("(?s)(<!-- benchmark: begin.*?\n```\n).*?(```\n.*<!-- benchmark: end -->)")

// replaceTable puts the table of rows into the first code block of the page's benchmark section.
func replaceTable(page string, rows []results.Row) (string, error) {
	found := tableBlock.FindStringSubmatchIndex(page)
	if found == nil {
		return "", errors.New("there is no code block between the comments that begin with benchmark")
	}
	return page[:found[3]] + results.Table(rows) + page[found[4]:], nil
}

// replacePictures describes each chart on the page in words, for those who cannot see it.
func replacePictures(page string, charts []chart) string {
	for i := range charts {
		c := &charts[i]
		alt := regexp.MustCompile(`<img alt="[^"]*" src="images/` + c.name + `-light.svg">`)
		text := html.EscapeString(c.title + ". " + c.description())
		page = alt.ReplaceAllLiteralString(page, `<img alt="`+text+`" src="images/`+c.name+`-light.svg">`)
	}
	return page
}

// measured is a cell of the comparison's table: 816 ms, 13–15 s, at most 2.6 s.
type measured struct {
	text      string
	low, high float64 // the same without a range
}

var measuredCell = regexp.MustCompile(`(?:at most )?([\d.]+)(?:–([\d.]+))? (?:ms|s|MB)\b`)

// comparisonRow returns what was compared of YurtHub and of edgehub. Both are in the
// same unit.
func comparisonRow(page, name string) (yurthub, edgehub measured, err error) {
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 7 || strings.TrimSpace(cells[1]) != name {
			continue
		}
		if yurthub, err = parseMeasured(cells[4]); err == nil {
			edgehub, err = parseMeasured(cells[5])
		}
		if err != nil {
			err = fmt.Errorf("docs/comparison.md: %s: %w", name, err)
		}
		return yurthub, edgehub, err
	}
	return yurthub, edgehub, fmt.Errorf("docs/comparison.md has no row %q with five columns", name)
}

func parseMeasured(cell string) (measured, error) {
	found := measuredCell.FindStringSubmatch(cell)
	if found == nil {
		return measured{}, fmt.Errorf("no figure with a unit in %q", cell)
	}
	low, err := strconv.ParseFloat(found[1], 64)
	high := low
	if err == nil && found[2] != "" {
		high, err = strconv.ParseFloat(found[2], 64)
	}
	return measured{text: found[0], low: low, high: high}, err
}
