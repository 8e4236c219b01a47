package testmain

import (
	"flag"
	"strconv"
)

// AtOnce has n tests run beside each other, unless -parallel is given. It is called
// before Main.
func AtOnce(n int) {
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		if err := parallel.Value.Set(strconv.Itoa(n)); err != nil {
			panic(err) // it is a number
		}
	}
}
