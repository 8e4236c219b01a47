package main

// raced are the packages that the gate tests with the race detector too: those in which goroutines
// meet. make test-races has all packages. The race detector has all that a package imports compiled
// a second time, so what imports most of the product, such as hub, is left to that.
func raced() []string {
	var packages []string
	for _, p := range []struct{ name, why string }{
		{"./cache", "lists, watches, writes and the return of the cloud share views"},
		{"./cache/identity", "requests of one token share one review"},
		{"./cache/spool", "clients add Events while others are sent"},
		{"./cache/log", "readers go on while the log is written anew"},
		{"./cache/view", "watches write what lists read"},
		{"./imagepull", "jobs of many pods share images, and are cancelled while they pull"},
		{"./ota", "requests, the queue and the cloud change the same pods"},
		{"./ota/queue", "upgrades are queued, cancelled and sent at once"},
		{"./proxy", "requests, their bodies and the loss of the cloud end each other"},
		{"./proxy/limits", "all connections share the limits"},
		{"./proxy/transform", "streams are changed while their clients go away"},
		{"./proxy/upstream", "requests choose an apiserver while probes change the choice"},
		{"./proxy/upstream/liveness", "connections are judged while requests use them"},
	} {
		packages = append(packages, p.name)
	}
	return packages
}
