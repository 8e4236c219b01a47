package log_test

import (
	"fmt"
	"testing"

	"github.com/edgehub-io/edgehub/cache/log"
)

// A view of 5,000 pods, each of which has 5.8 KB, as a kubelet-sized apiserver sends them in protobuf.
const (
	benchPods = 5000
	benchSize = 5800
)

func benchPod(i int) string { return fmt.Sprintf("default/deployment-7d4b9c6f5-%05d", i) }

// benchView is a LIST. Sums are computed when it is read, not when it is put.
func benchView(version string) log.Change {
	c := log.Change{Table: "pods", Clear: true}
	for i := range benchPods {
		b := make([]byte, benchSize)
		copy(b, fmt.Sprint(version, i))
		c.Put = append(c.Put, log.Row{Key: benchPod(i), Value: []byte(version), Bodies: []log.Body{{Sum: log.SumOf(b), Bytes: b}}})
	}
	return c
}

func BenchmarkCommit5000(b *testing.B) {
	for name, opts := range options() {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(benchPods * benchSize)
			for b.Loop() {
				b.StopTimer()
				o := open(b, b.TempDir(), opts)
				c := benchView("1")
				b.StartTimer()
				o.change(b, c)
				o.flush(b)
				b.StopTimer()
				o.close(b)
				b.StartTimer()
			}
		})
	}
}

// What one second brings at 200 updates a second.
func BenchmarkCommit200Updates(b *testing.B) {
	for name, opts := range options() {
		b.Run(name, func(b *testing.B) {
			o := open(b, b.TempDir(), opts)
			o.change(b, benchView("1"))
			o.flush(b)
			v := 1
			for b.Loop() {
				v++
				b.StopTimer()
				next := log.Change{Table: "pods"}
				for i := range 200 {
					body := make([]byte, benchSize)
					copy(body, fmt.Sprint(v, i))
					next.Put = append(next.Put, log.Row{Key: benchPod((v*200 + i*17) % benchPods), Value: fmt.Append(nil, v), Bodies: []log.Body{{Sum: log.SumOf(body), Bytes: body}}})
				}
				b.StartTimer()
				o.change(b, next)
				o.flush(b)
			}
		})
	}
}

func BenchmarkBodies5000(b *testing.B) {
	for name, opts := range options() {
		b.Run(name, func(b *testing.B) {
			o := open(b, b.TempDir(), opts)
			o.change(b, benchView("1"))
			o.flush(b)
			var all []log.Sum
			for _, row := range o.Rows("pods") { // an owner has them in order
				all = append(all, row.Bodies[0].Sum)
			}
			b.SetBytes(benchPods * benchSize)
			for b.Loop() {
				n := 0
				r := o.log.NewReader()
				for sums := all; len(sums) > 0; {
					read, err := r.Read(sums, func(_ int, body []byte) error {
						n += len(body)
						return nil
					})
					if err != nil {
						b.Fatal(err)
					}
					sums = sums[read:]
				}
				r.Close()
				if n != benchPods*benchSize {
					b.Fatal(n)
				}
			}
		})
	}
}

// A start with 200 small views, and one of 5,000 pods.
func BenchmarkStart(b *testing.B) {
	dir := b.TempDir()
	o := open(b, dir, log.Options{})
	o.change(b, benchView("1"))
	o.flush(b)
	for view := range 200 {
		body := make([]byte, benchSize)
		copy(body, fmt.Sprint(view))
		o.change(b, log.Change{Table: fmt.Sprint("view ", view), Put: []log.Row{{Key: "default/one", Bodies: []log.Body{{Sum: log.SumOf(body), Bytes: body}}}}})
		o.flush(b)
	}
	o.close(b)
	for b.Loop() {
		o := open(b, dir, log.Options{})
		if len(o.tables) != 201 || len(o.tables["pods"]) != benchPods {
			b.Fatal(len(o.tables))
		}
		o.close(b)
	}
}

// A new file, while nothing else is done.
func BenchmarkRewrite5000(b *testing.B) {
	o := open(b, b.TempDir(), log.Options{})
	o.change(b, benchView("1"))
	o.flush(b)
	b.SetBytes(benchPods * benchSize)
	for b.Loop() {
		if err := o.log.Rewrite(); err != nil {
			b.Fatal(err)
		}
	}
}
