package cli

import "strings"

const (
	// bash's own words also end at colons, which addresses have, and at equals signs. bash then
	// replaces only what stands behind them, so the script removes what stands before.
	bashScript = `FUNCTION() {
	local words line typed kept= breaks=${COMP_WORDBREAKS//[!=:]/}
	read -ra words <<<"${COMP_LINE:0:COMP_POINT}"
	[[ ${COMP_LINE:COMP_POINT-1:1} == [[:blank:]] ]] && words+=("")
	typed=${words[${#words[@]}-1]}
	[[ -n $breaks ]] && kept=${typed%"${typed##*[$breaks]}"}
	COMPREPLY=()
	while IFS= read -r line; do COMPREPLY+=("${line#"$kept"}"); done \
		< <("${words[0]}" __complete "${words[@]:1}" 2>/dev/null)
	[[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == */ ]] && compopt -o nospace 2>/dev/null
	return 0
}
complete -F FUNCTION PROGRAM
`
	zshScript = `#compdef PROGRAM
FUNCTION() {
	compadd -- ${(f)"$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)"}
}
if [[ ${funcstack[1]} = FUNCTION ]]; then FUNCTION "$@"; else compdef FUNCTION PROGRAM; fi
`
	fishScript = `complete -c PROGRAM -f -a '(set -l words (commandline -opc) (commandline -ct); $words[1] __complete $words[2..-1] 2>/dev/null)'
`
)

// shells are those that have a script.
func shells() []string { return []string{"bash", "zsh", "fish"} }

// scriptFor returns what a shell has to evaluate to complete the program.
func scriptFor(shell, program string) (string, error) {
	scripts := map[string]string{"bash": bashScript, "zsh": zshScript, "fish": fishScript}
	script, ok := scripts[shell]
	if !ok {
		return "", WrongUse("%q is no shell: want %s", shell, strings.Join(shells(), ", "))
	}
	function := "_" + strings.ReplaceAll(program, "-", "_")
	return strings.NewReplacer("FUNCTION", function, "PROGRAM", program).Replace(script), nil
}
