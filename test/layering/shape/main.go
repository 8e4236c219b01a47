package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

func main() {
	dir := ".."
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	shapes, err := measure(context.Background(), dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "shape:", err)
		os.Exit(1)
	}
	report(os.Stdout, shapes)
}

// report prints a line for each package, the one with the most lines first, and a
// summary of all.
func report(w io.Writer, shapes []shape) {
	slices.SortFunc(shapes, func(a, b shape) int { return cmp.Compare(sum(b.Files), sum(a.Files)) })
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PACKAGE\tFILES\tLINES\tREFERENCES\tPER FILE\tMUTUAL")
	all := shape{}
	for _, s := range shapes {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%.1f\t%d\n", short(s.Package), len(s.Files), sum(s.Files), s.References, s.perFile(), s.Mutual)
		all.Files = append(all.Files, s.Files...)
		all.Functions = append(all.Functions, s.Functions...)
		all.References += s.References
		all.Mutual += s.Mutual
	}
	table.Flush()
	fmt.Fprintf(w, "\n%d packages, %d files, %d lines; %d references between files of a package, %.1f a file, %d of them mutual\n",
		len(shapes), len(all.Files), sum(all.Files), all.References, all.perFile(), all.Mutual)
	fmt.Fprintf(w, "files:     median %d, longest %d lines\n", percentile(all.Files, 50), percentile(all.Files, 100))
	fmt.Fprintf(w, "functions: median %d, 99th percentile %d, longest %d lines\n",
		percentile(all.Functions, 50), percentile(all.Functions, 99), percentile(all.Functions, 100))
}

// perFile is how many other files of its package a file refers to, on average.
func (s shape) perFile() float64 {
	return float64(s.References) / float64(max(len(s.Files), 1))
}

func percentile(lines []int, percent int) int {
	sorted := slices.Sorted(slices.Values(lines))
	return sorted[(len(sorted)-1)*percent/100]
}

func sum(lines []int) (total int) {
	for _, n := range lines {
		total += n
	}
	return total
}

// short is a package's folder in the product.
func short(path string) string {
	_, rest, _ := strings.Cut(strings.TrimPrefix(path, "github.com/"), "/")
	_, folder, _ := strings.Cut(rest, "/")
	return cmp.Or(folder, ".")
}
