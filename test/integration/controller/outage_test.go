package controller_test

import "testing"

func TestTheApiserverGoesAndComesBack(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: "OTA"})
	r := startReplica(t, "--leader-elect=false")
	f.await(map[string]int{upToDate: nodes})
	if err := env.cluster.APIServer().Kill(); err != nil {
		t.Fatal(err)
	}
	if err := env.cluster.APIServer().Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.SetImage("app:2")
	f.await(map[string]int{needsOne: nodes})
	if !r.healthy() {
		t.Error("the controller is not healthy, or not ready")
	}
}
