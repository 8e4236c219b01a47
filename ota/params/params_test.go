package params

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for name, tt := range map[string]struct {
		query string
		known []string
		want  string // of the error; "" if there is none
	}{
		"nothing":                {"", nil, ""},
		"all that there are":     {"a=1&b=", []string{"a", "b"}, ""},
		"where there are none":   {"wacth=true", nil, `"wacth" is no parameter: there are none`},
		"where there is one":     {"Watch=true", []string{"watch"}, `"Watch" is no parameter: there is watch`},
		"where there are more":   {"a=1&d=2", []string{"a", "b", "c"}, `"d" is no parameter: there are a, b and c`},
		"twice":                  {"a=1&a=1", []string{"a"}, `"a" is given 2 times`},
		"an escape that is none": {"a=%zz", []string{"a"}, `the query cannot be read: invalid URL escape "%zz"`},
		"a line break":           {"a%0a=1", []string{"a"}, `"a\n" is no parameter: there is a`},
		"a long one":             {strings.Repeat("x", 5000), nil, `"` + strings.Repeat("x", 50) + `" is no parameter: there are none`},
	} {
		t.Run(name, func(t *testing.T) {
			values, err := Parse(tt.query, tt.known...)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != tt.want || err == nil && len(values) != len(tt.known) {
				t.Errorf("got %v and %q, want %q", values, got, tt.want)
			}
		})
	}
}

func TestBool(t *testing.T) {
	for query, want := range map[string]string{
		"": "false", "watch=true": "true", "watch=1": "true", "watch=false": "false", "watch=0": "false",
		"watch=": `watch: "" is neither true nor false`, "watch=yes": `watch: "yes" is neither true nor false`,
	} {
		values, err := Parse(query, "watch")
		if err != nil {
			t.Fatal(err)
		}
		got := "false"
		if on, err := Bool(values, "watch"); err != nil {
			got = err.Error()
		} else if on {
			got = "true"
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", query, got, want)
		}
	}
}
