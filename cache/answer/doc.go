// Package answer answers GET and LIST while the cloud is away, and encodes the initial events
// of a watch.
//
// For a LIST, [Request.Read] tries the media types of the Accept header in their order; for each it picks the view with
// the highest resourceVersion that covers the query, and converts. A GET is answered with the newest
// copy that the user has seen, from any view, or not at all. Some objects are not shown as they are cached: package
// derived says which.
//
// A body is encoded piece by piece while its client reads, and users are served fairly. So a
// client that does not read costs no more than one piece. If damage shows in the middle, the
// body breaks off: it never ends early as if it were complete.
//
// [Answerer] is safe for concurrent use. A body, and [Pieces], are for one goroutine at a time,
// and must be closed.
package answer
