// Command pause holds the namespaces of a pod: it does nothing until it is signalled
// to end.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	end := make(chan os.Signal, 1) // signal.Notify does not wait
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	<-end
}
