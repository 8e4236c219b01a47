package engine

import "testing"

func TestAVariableIsReadFromASpec(t *testing.T) {
	for name, tt := range map[string]struct {
		spec, want string
		ok, fails  bool
	}{
		"it is there":                      {`{"process":{"env":["A=1","HOST=192.0.2.1","B=HOST=2"]}}`, "192.0.2.1", true, false},
		"a longer name is another":         {`{"process":{"env":["HOST_A=192.0.2.1"]}}`, "", false, false},
		"it is empty":                      {`{"process":{"env":["HOST="]}}`, "", true, false},
		"there is no environment":          {`{"process":{}}`, "", false, false},
		"a spec for another kind of guest": {`{}`, "", false, false},
		"a spec that is not JSON":          {`no`, "", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok, err := environmentValue([]byte(tt.spec), "HOST")
			if got != tt.want || ok != tt.ok || (err != nil) != tt.fails {
				t.Errorf("%q, %v, %v", got, ok, err)
			}
		})
	}
}
