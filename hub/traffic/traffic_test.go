package traffic

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/ota/api"
)

// link is the connections to the cloud.
type link struct{ sent, received int64 }

func (l *link) open(file string) *Meter {
	l.sent, l.received = 0, 0 // they are new ones
	return Open(Options{
		File: file, Total: func() (int64, int64) { return l.sent, l.received }, Plausible: func(t time.Time) bool { return t.Year() >= 2000 },
		Logger: slog.New(slog.DiscardHandler),
	})
}

func (l *link) exchange(sent, received int64) {
	l.sent += sent
	l.received += received
}

func want(t *testing.T, m *Meter, sent, received int64) api.Traffic {
	t.Helper()
	got := m.Month()
	if got.Sent != sent || got.Received != received {
		t.Errorf("got %+v, want %d sent and %d received", got, sent, received)
	}
	return got
}

// In a bubble, time begins at 2000-01-01T00:00:00Z.
func TestMonthsAndRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "traffic.json")
		var l link
		m := l.open(file)
		if since := want(t, m, 0, 0).Since; !since.Equal(time.Now()) {
			t.Errorf("counted since %v", since)
		}
		l.exchange(10, 100)
		want(t, m, 10, 100)
		want(t, m, 10, 100)
		m.save()
		m = l.open(file)
		want(t, m, 10, 100)
		l.exchange(1, 2)
		want(t, m, 11, 102)

		time.Sleep(31 * 24 * time.Hour)
		l.exchange(5, 6)
		if since := want(t, m, 5, 6).Since; since.Month() != time.February {
			t.Errorf("February is counted since %v", since)
		}
	})
}

func TestAClockThatIsWrong(t *testing.T) {
	var l link
	m := l.open(filepath.Join(t.TempDir(), "traffic.json"))
	at := func(day string, sent int64) {
		t.Helper()
		now, err := time.Parse(time.DateOnly, day)
		if err != nil {
			t.Fatal(err)
		}
		l.exchange(sent, 0)
		m.countLocked(now)
	}
	sent := func(month string, want int64) {
		t.Helper()
		if got := m.kept.Months[month].Sent; got != want {
			t.Errorf("%s has %d bytes, want %d", month, got, want)
		}
	}
	at("2026-10-30", 1)
	at("2026-11-02", 10)
	at("1970-01-01", 20) // the node has booted, and does not know the time yet
	sent("2026-11", 30)
	at("2099-05-05", 5)
	at("2026-11-03", 100)
	sent("2026-11", 130)
	sent("2099-05", 5)
	at("2026-12-01", 7)
	sent("2026-12", 7)
	if _, ok := m.kept.Months["2026-10"]; ok || len(m.kept.Months) != months {
		t.Errorf("there are %v", m.kept.Months)
	}
	text, err := json.Marshal(m.kept) // save has the clock of the machine
	if err == nil {
		err = os.WriteFile(m.File, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	m = l.open(m.File)
	at("1970-01-01", 3) // and 2099 is not the month of before
	sent("2026-12", 10)
}

func TestADamagedFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "traffic.json")
	for _, text := range []string{"", "null", `{"months":`, `{"current":"2026-11"}`, "\x00\x00"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var l link
		m := l.open(file)
		l.exchange(3, 4)
		want(t, m, 3, 4)
		m.save()
		want(t, l.open(file), 3, 4)
	}
}

func TestTheFileIsWrittenSeldomAndAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder := filepath.Join(t.TempDir(), "absent")
		var l link
		m := l.open(filepath.Join(folder, "traffic.json"))
		l.exchange(1, 1)
		m.save() // fails
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		m.save()
		if err := os.Remove(m.File); err != nil {
			t.Fatal(err)
		}
		m.save()
		if _, err := os.Stat(m.File); !os.IsNotExist(err) {
			t.Errorf("it is written although nothing was exchanged: %v", err)
		}
	})
}
