package wire

// These are with limits that tests can reach.
var (
	NewLimitedFrameReader = newFrameReader
	NewLimitedSplitter    = newSplitter
)
