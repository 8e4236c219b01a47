// Command shape prints how large the product's packages are and how closely their
// files depend on each other: `cd test && go run ./layering/shape`, or with the
// folder of another checkout as argument, to compare two versions of the product.
//
// A file refers to another one of its package when it uses anything declared there:
// a function, type, method, field, variable or constant. The measure of a package is
// the number of such pairs of files, divided by the number of its files. A reader of
// one file has to look into that many others.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// shape is what is measured of a package, or of all.
type shape struct {
	Package    string
	Files      []int // lines of each
	Functions  []int // lines of each
	References int   // pairs of files
	Mutual     int   // references of files that refer to each other
}

// listed is what `go list` prints of a package.
type listed struct {
	ImportPath string
	Dir        string
	Export     string
	GoFiles    []string
	Module     *struct{ Main bool }
}

// measure returns the shapes of all packages of the module in dir. It compiles them,
// since types are read from what the compiler exports.
func measure(ctx context.Context, dir string) ([]shape, error) {
	packages, err := list(ctx, dir)
	if err != nil {
		return nil, err
	}
	exports := map[string]string{}
	for _, p := range packages {
		exports[p.ImportPath] = p.Export
	}
	var shapes []shape
	for _, p := range packages {
		if p.Module == nil || !p.Module.Main || len(p.GoFiles) == 0 {
			continue
		}
		s, err := measurePackage(p, exports)
		if err != nil {
			return nil, fmt.Errorf("measure %s: %w", p.ImportPath, err)
		}
		shapes = append(shapes, s)
	}
	return shapes, nil
}

func list(ctx context.Context, dir string) ([]listed, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-export", "-json=ImportPath,Dir,Export,GoFiles,Module", "-tags=grpcnotrace", "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var packages []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("read what go list printed: %w", err)
		}
		packages = append(packages, p)
	}
}

func measurePackage(p listed, exports map[string]string) (shape, error) {
	s := shape{Package: p.ImportPath}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return s, err
		}
		files = append(files, f)
		s.Files = append(s.Files, fset.File(f.Pos()).LineCount())
		for _, decl := range f.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok {
				s.Functions = append(s.Functions, fset.Position(fn.End()).Line-fset.Position(fn.Pos()).Line+1)
			}
		}
	}
	lookup := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	config := types.Config{Importer: importer.ForCompiler(fset, "gc", lookup)}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	checked, err := config.Check(strings.TrimSuffix(p.ImportPath, "_test"), fset, files, info)
	if err != nil {
		return s, err
	}
	s.References, s.Mutual = references(fset, checked, info)
	return s, nil
}

// references counts the ordered pairs of files of which the first uses what the
// second declares, and those of them that are so both ways.
func references(fset *token.FileSet, p *types.Package, info *types.Info) (all, mutual int) {
	type pair struct{ from, to string }
	pairs := map[pair]bool{}
	for ident, used := range info.Uses {
		if used.Pkg() != p || !used.Pos().IsValid() {
			continue
		}
		from, to := fset.Position(ident.Pos()).Filename, fset.Position(used.Pos()).Filename
		if from != to {
			pairs[pair{from, to}] = true
		}
	}
	for found := range pairs {
		if pairs[pair{found.to, found.from}] {
			mutual++
		}
	}
	return len(pairs), mutual
}
