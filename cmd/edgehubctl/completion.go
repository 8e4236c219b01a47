package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// completeVerb is what the shells' scripts call, with the words of the command line
// up to the one that is being typed, which may be empty. What may stand for that is
// printed, one a line.
const completeVerb = "__complete"

// Scripts keep nothing of what they complete: commands and flags of a newer version
// are in them at once.
const (
	// bash's own words end at colons too, which addresses have.
	bashScript = `_edgehubctl() {
	local words line
	read -ra words <<<"${COMP_LINE:0:COMP_POINT}"
	[[ ${COMP_LINE:COMP_POINT-1:1} == [[:blank:]] ]] && words+=("")
	COMPREPLY=()
	while IFS= read -r line; do COMPREPLY+=("$line"); done \
		< <("${words[0]}" __complete "${words[@]:1}" 2>/dev/null)
}
complete -F _edgehubctl edgehubctl
`
	zshScript = `#compdef edgehubctl
_edgehubctl() {
	compadd -- ${(f)"$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)"}
}
if [[ ${funcstack[1]} = _edgehubctl ]]; then _edgehubctl "$@"; else compdef _edgehubctl edgehubctl; fi
`
	fishScript = `complete -c edgehubctl -f -a '(set -l words (commandline -opc) (commandline -ct); $words[1] __complete $words[2..-1] 2>/dev/null)'
`
)

func scripts() map[string]string {
	return map[string]string{"bash": bashScript, "zsh": zshScript, "fish": fishScript}
}

func shells() []string { return []string{"bash", "zsh", "fish"} }

func completion(_ context.Context, c *call) error {
	script, ok := scripts()[c.args[0]]
	if !ok {
		return wrongUse("%q is no shell: want %s", c.args[0], strings.Join(shells(), ", "))
	}
	_, err := io.WriteString(c.out, script)
	return err
}

// completeTimeout is how long a person waits for the names of pods.
const completeTimeout = 2 * time.Second

// complete prints what may stand for the last of words. It says nothing of what goes
// wrong: the person is in the middle of a line.
func complete(ctx context.Context, words []string, w io.Writer) {
	if len(words) == 0 {
		words = []string{""}
	}
	before, typed := words[:len(words)-1], words[len(words)-1]
	ctx, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	for _, candidate := range candidates(ctx, before, typed) {
		if strings.HasPrefix(candidate, typed) {
			fmt.Fprintln(w, candidate)
		}
	}
}

func candidates(ctx context.Context, before []string, typed string) []string {
	var o options
	fs := o.flags()
	if len(before) > 0 {
		switch last := before[len(before)-1]; {
		case last == "-o" || last == "--output":
			return []string{"json"}
		case slices.Contains([]string{"--certificate-authority", "--client-certificate", "--client-key"}, last):
			return files(typed)
		case wantsValue(fs, last):
			return nil
		}
	}
	fs.ParseErrorsAllowlist.UnknownFlags = true
	_ = fs.Parse(before) // as far as it goes
	said := fs.Args()
	if len(said) == 0 {
		if strings.HasPrefix(typed, "-") {
			return flagNames(append(commonFlags(), "version"))
		}
		return append(commandNames(), "help")
	}
	if said[0] == "help" && len(said) == 1 {
		return commandNames()
	}
	verb, err := find(said[0])
	switch {
	case err != nil:
		return nil
	case strings.HasPrefix(typed, "-"):
		return flagNames(append(commonFlags(), verb.flags...))
	case len(said) > len(verb.args):
		return nil
	case verb.name == "completion":
		return shells()
	}
	return o.upgradable(ctx, typed)
}

// files returns the files and folders that typed may become.
func files(typed string) []string {
	asTyped := strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`)
	names, err := filepath.Glob(asTyped.Replace(typed) + "*")
	if err != nil {
		return nil
	}
	for i, file := range names {
		if info, err := os.Stat(file); err == nil && info.IsDir() {
			names[i] += "/"
		}
	}
	return names
}

// wantsValue tells whether word is a flag whose value comes next.
func wantsValue(fs *pflag.FlagSet, word string) bool {
	var flag *pflag.Flag
	if long, ok := strings.CutPrefix(word, "--"); ok {
		flag = fs.Lookup(long)
	} else if short, ok := strings.CutPrefix(word, "-"); ok && len(short) == 1 {
		flag = fs.ShorthandLookup(short)
	}
	return flag != nil && flag.NoOptDefVal == ""
}

func flagNames(flags []string) []string {
	var names []string
	for _, f := range flags {
		names = append(names, "--"+f)
	}
	slices.Sort(names)
	return names
}

// upgradable returns the pods that need an upgrade, as they are to be typed.
func (o *options) upgradable(ctx context.Context, typed string) []string {
	h, err := newHub(o.address, o.tls)
	if err != nil {
		return nil
	}
	pods, err := h.nodePods(ctx)
	if err != nil {
		return nil
	}
	var names []string
	for _, p := range pods {
		switch {
		case !needsUpgrade(p), o.namespace != "" && o.namespace != p.Namespace:
		case o.namespace != "" && !strings.Contains(typed, "/"):
			names = append(names, p.Name)
		default:
			names = append(names, p.Namespace+"/"+p.Name)
		}
	}
	return names
}
