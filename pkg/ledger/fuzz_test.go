package ledger

import (
	"math/rand/v2"
	"testing"
)

// FuzzWorlds looks for worlds in which a property does not hold. Each byte is one choice: the first says which property. Worth
// running with -fuzzminimizetime=20x: its inputs are long.
func FuzzWorlds(f *testing.F) {
	names := propertyNames()
	for i := range names {
		f.Add([]byte{byte(i)})
		r := rand.New(rand.NewPCG(uint64(i), 1))
		for range 2 {
			data := make([]byte, 1500) // a world makes a few hundred choices
			for j := range data {
				data[j] = byte(r.IntN(256))
			}
			data[0] = byte(i)
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &bytesLeft{data}
		p := properties[names[c.upTo("property", len(names)-1)]]
		p(t, worldOf(c))
	})
}
