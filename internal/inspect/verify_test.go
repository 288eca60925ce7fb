package inspect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// feed gives one export after the other, and the last for ever; nil stands for a manager that is rebuilding.
func feed(exports ...*ledger.Export) func(context.Context) (*ledger.Export, error) {
	return func(context.Context) (*ledger.Export, error) {
		e := exports[0]
		if len(exports) > 1 {
			exports = exports[1:]
		}
		if e == nil {
			return nil, ErrRebuilding
		}
		return e, nil
	}
}

// held is a node of eight devices of which claims have these.
func held(t *testing.T, source ledger.Source, devices ...int) *ledger.Export {
	w := newWorld().node("a", "h100", nil).slice("a", "h100", 1, 1, 8)
	for _, i := range devices {
		w.claim(fmt.Sprintf("c-%d", i), "", id("a", i))
	}
	return w.export(t, source)
}

func TestVerify(t *testing.T) {
	live := func(devices ...int) *ledger.Export { return held(t, ledger.SourceManager, devices...) }
	cold := func(devices ...int) *ledger.Export { return held(t, ledger.SourceAPI, devices...) }
	const first = "device a gpu.example.com/a/gpu-0 of a-1"
	cases := map[string]struct {
		live, cold []*ledger.Export
		equal      bool
		// lasting are the keys that differ for good; err what comes instead.
		lasting []string
		err     error
	}{
		"equal at once": {live: []*ledger.Export{live(1)}, cold: []*ledger.Export{cold(1)}, equal: true},
		"equal to what was before, though it moved on":  {live: []*ledger.Export{live(1)}, cold: []*ledger.Export{cold(1), cold(2)}, equal: true},
		"equal to what came meanwhile":                  {live: []*ledger.Export{live(2)}, cold: []*ledger.Export{cold(1), cold(2)}, equal: true},
		"a manager that lags and comes after":           {live: []*ledger.Export{live(), live(), live(0)}, cold: []*ledger.Export{cold(0)}, equal: true},
		"a manager that fills its book first":           {live: []*ledger.Export{nil, nil, live(0)}, cold: []*ledger.Export{cold(0)}, equal: true},
		"a manager that never has filled its book":      {live: []*ledger.Export{nil}, cold: []*ledger.Export{cold()}, err: ErrRebuilding},
		"a difference that stays":                       {live: []*ledger.Export{live()}, cold: []*ledger.Export{cold(0)}, lasting: []string{first, "zone a -1"}},
		"a difference that stays while others move":     {live: []*ledger.Export{live(1), live(2, 3), live(1), live(2, 3)}, cold: []*ledger.Export{cold(0, 4)}, lasting: []string{first, "device a gpu.example.com/a/gpu-4 of a-1"}},
		"what the API server moves never is one":        {live: []*ledger.Export{live()}, cold: []*ledger.Export{cold(0), cold(1, 2), cold(0), cold(1, 2), cold(0), cold(1, 2), cold(0), cold(1, 2)}, err: ErrMoving},
		"what the manager moves never is one":           {live: []*ledger.Export{live(1), live(2, 3), live(1), live(2, 3), live(1), live(2, 3)}, cold: []*ledger.Export{cold()}, err: ErrMoving},
		"a difference that is another one in each look": {live: []*ledger.Export{live(1), live(2, 3), live(4, 5, 6), live(0, 1, 2, 7), live(3), live(4, 7)}, cold: []*ledger.Export{cold()}, err: ErrMoving},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			v := &Verifier{Live: feed(c.live...), Cold: feed(c.cold...), Tries: 6, Pause: time.Nanosecond}
			verdict, err := v.Verify(t.Context())
			if !errors.Is(err, c.err) {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			if c.err != nil {
				return
			}
			var keys []string
			for _, d := range verdict.Lasting {
				keys = append(keys, d.Key)
			}
			if strings.Join(keys, "\n") != strings.Join(c.lasting, "\n") || verdict.Equal != c.equal {
				t.Errorf("equal %t, lasting %q; want %t, %q", verdict.Equal, keys, c.equal, c.lasting)
			}
		})
	}
}

func TestVerifyEndsWithTheFirstThingThatCannotBeRead(t *testing.T) {
	broken := func(context.Context) (*ledger.Export, error) { return nil, errors.New("no route") }
	good := feed(held(t, ledger.SourceAPI))
	for name, v := range map[string]*Verifier{
		"the manager": {Live: broken, Cold: good}, "the API server": {Live: good, Cold: broken},
	} {
		if verdict, err := v.Verify(t.Context()); err == nil || !strings.Contains(err.Error(), "no route") {
			t.Errorf("%s: %v, %v", name, verdict, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	v := &Verifier{Live: feed(held(t, ledger.SourceManager, 1)), Cold: good, Tries: 2, Pause: time.Hour}
	if _, err := v.Verify(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that it was interrupted", err)
	}
}

func TestAVerdictInWords(t *testing.T) {
	var out bytes.Buffer
	v := &Verifier{Live: feed(held(t, ledger.SourceManager)), Cold: feed(held(t, ledger.SourceAPI, 0)), Tries: 4, Pause: time.Nanosecond}
	verdict, err := v.Verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := verdict.Print(&out); err != nil {
		t.Fatal(err)
	}
	out.WriteString("--\n")
	v.Cold = v.Live
	if verdict, err = v.Verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	verdict.Live.Header.Digest = "sha256:0123" // has its own tests
	if err := verdict.Print(&out); err != nil {
		t.Fatal(err)
	}
	golden(t, "verdict.txt", out.String())
}
