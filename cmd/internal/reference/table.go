package reference

import "strings"

// table is a table in Markdown.
type table struct{ text strings.Builder }

func newTable(columns ...string) *table {
	t := &table{}
	t.row(columns...)
	t.text.WriteString(strings.Repeat("|---", len(columns)) + "|\n")
	return t
}

func (t *table) row(cells ...string) {
	for _, cell := range cells {
		cell = strings.ReplaceAll(strings.Join(strings.Fields(cell), " "), "|", `\|`)
		t.text.WriteString("| " + cell + " ")
	}
	t.text.WriteString("|\n")
}

func (t *table) String() string { return t.text.String() }

func code(s string) string { return "`" + s + "`" }
