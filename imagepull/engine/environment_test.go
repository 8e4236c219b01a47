package engine

import (
	"maps"
	"testing"
)

func TestVariablesAreReadFromASpec(t *testing.T) {
	for name, tt := range map[string]struct {
		spec  string
		want  map[string]string
		fails bool
	}{
		"they are there":                   {`{"process":{"env":["A=1","HOST=192.0.2.1","B=HOST=2","PORT=3"]}}`, map[string]string{"HOST": "192.0.2.1", "PORT": "3"}, false},
		"one is there twice":               {`{"process":{"env":["HOST=192.0.2.1","HOST=192.0.2.2"]}}`, map[string]string{"HOST": "192.0.2.2"}, false},
		"a longer name is another":         {`{"process":{"env":["HOST_A=192.0.2.1"]}}`, nil, false},
		"one is empty":                     {`{"process":{"env":["HOST="]}}`, map[string]string{"HOST": ""}, false},
		"there is no environment":          {`{"process":{}}`, nil, false},
		"a spec for another kind of guest": {`{}`, nil, false},
		"a spec that is not JSON":          {`no`, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := environmentValues([]byte(tt.spec), []string{"HOST", "PORT"})
			if !maps.Equal(got, tt.want) || (err != nil) != tt.fails {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}
