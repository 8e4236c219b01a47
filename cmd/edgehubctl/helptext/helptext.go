// Package helptext has the help of edgehubctl and of each of its commands, as text files.
package helptext

import (
	"embed"
	"strings"
)

//go:embed *.txt
var files embed.FS

// Of returns the help of a command, or of edgehubctl itself, and "" if there is none.
func Of(command string) string {
	text, err := files.ReadFile(command + ".txt")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
