package arch

// module is the import path of this repository.
const module = "github.com/plimsoll-dev/plimsoll"

// row says what the packages of one folder may import. It holds for the folders below it too, unless one of them has
// a row of its own. A folder may always import itself and what lies below it. Test files keep to the same row for
// this module's packages, may use internal/testing besides, and may import anything from elsewhere.
type row struct {
	folder string
	// own are the folders of this module that may be imported, each with all that lies below it.
	own []string
	// elsewhere are the packages from other modules that may be imported: a path, or a path and "/..." for all
	// below it. Nil allows everything.
	elsewhere []string
	// pure packages do no I/O, read no clock, write no log and draw no random numbers.
	pure bool
	// repeatable packages read no clock, print nothing and draw no random numbers: what they do they do the same each time.
	repeatable bool
}

// edge are the parts of the manager that its controllers share.
var edge = []string{
	"api", "pkg", "internal/eviction", "internal/faultpoint", "internal/metrics", "internal/observe", "internal/placements",
	"internal/policies", "internal/steering",
}

// Imports point one way: api ← {ledger, flavors, fairshare, quota, report} ← admission ← simulate ← internal ← cmd;
// report, which is about words and not decisions, is for simulate and internal alone.
// Nothing outside test/ imports test/.
var table = []row{
	{folder: "api", own: nil, elsewhere: apiMachinery, pure: true},

	{folder: "pkg/ledger", own: []string{"api"}, elsewhere: core, pure: true},
	{folder: "pkg/flavors", own: []string{"api", "pkg/ledger"}, elsewhere: core, pure: true},
	{folder: "pkg/fairshare", own: []string{"api"}, elsewhere: core, pure: true},
	{folder: "pkg/quota", own: []string{"api"}, elsewhere: kueueScheduler, pure: true},
	{folder: "pkg/report", own: []string{"api"}, elsewhere: core, pure: true},
	{
		folder:    "pkg/admission",
		own:       []string{"api", "pkg/ledger", "pkg/flavors", "pkg/fairshare", "pkg/quota"},
		elsewhere: core, pure: true,
	},
	{
		folder: "pkg/simulate",
		own: []string{
			"api", "pkg/ledger", "pkg/flavors", "pkg/fairshare", "pkg/quota", "pkg/admission", "pkg/report",
		},
		elsewhere: kueueScheduler, pure: true,
	},

	{folder: "internal", own: []string{"api", "pkg", "config"}},
	// The manager's parts are made in one place. The manager runs them against an API server and simulate against one in
	// memory: neither knows of the other, and no part of whom it is run by.
	{folder: "internal/controller", own: edge},
	{folder: "internal/parts", own: append([]string{"internal/controller"}, edge...)},
	{folder: "internal/manager", own: []string{"api", "pkg", "internal/kueueconfig", "internal/metrics", "internal/observe", "internal/parts", "internal/webhook"}},
	{
		folder: "internal/simulate",
		own: []string{
			"api", "pkg", "internal/kueueconfig", "internal/observe", "internal/parts", "internal/policies", "internal/steering", "internal/webhook",
		},
		repeatable: true,
	},
	// What stands for Kubernetes knows nothing of Plimsoll but the kinds, and whether a node takes a pod, which is
	// pkg/admission's to say.
	{folder: "internal/simulate/store", own: []string{"api"}, repeatable: true},
	{
		folder:     "internal/simulate/kube",
		own:        []string{"api", "pkg/admission", "pkg/flavors", "pkg/ledger", "internal/observe", "internal/simulate/store"},
		repeatable: true,
	},
	{folder: "internal/simulate/input", own: []string{"api", "config", "pkg/ledger", "internal/kueueconfig", "internal/observe", "internal/webhook"}, repeatable: true},
	{folder: "internal/explain", own: []string{"api", "pkg/report", "internal/policies"}},
	{folder: "cmd", own: []string{"api", "pkg", "internal", "config"}},

	{folder: "config", own: nil}, // at most a package that embeds the manifests
	{folder: "hack", own: []string{"api", "pkg", "internal"}},
	{folder: "test", own: []string{"api", "pkg", "internal", "cmd", "config"}},
}

var apiMachinery = []string{
	"k8s.io/api/...",
	"k8s.io/apimachinery/...",
}

var core = append([]string{
	"github.com/go-logr/logr", // a logger that was handed in, or logr.Discard, for libraries that insist on one
	"k8s.io/component-helpers/...",
	"k8s.io/dynamic-resource-allocation/...",
	"k8s.io/utils/ptr",
	"sigs.k8s.io/kueue/apis/...",
}, apiMachinery...)

// kueueScheduler is for the packages that run Kueue's own code, with the reader and the fake client that it needs.
var kueueScheduler = append([]string{
	"k8s.io/client-go/kubernetes/scheme",
	"k8s.io/client-go/tools/record",
	"k8s.io/utils/clock",
	"k8s.io/utils/clock/testing",
	"sigs.k8s.io/controller-runtime/pkg/client",
	"sigs.k8s.io/controller-runtime/pkg/client/fake",
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor",
	"sigs.k8s.io/kueue/pkg/...",
}, core...)

// impure are the packages of the standard library that a pure package may not import.
var impure = []string{
	"crypto/rand",
	"database/...",
	"expvar",
	"flag",
	"io/fs",
	"io/ioutil",
	"log/...",
	"math/rand/...",
	"net/...",
	"os/...",
	"path/filepath",
	"plugin",
	"syscall/...",
	"testing/...",
	"unsafe",
}

// random are the packages of the standard library that a repeatable package may not import.
var random = []string{"crypto/rand", "math/rand/..."}

// impureCalls are the functions, by import path, that a pure package may not even mention: they read the clock or
// write to the standard output.
var impureCalls = map[string][]string{
	"context": {"WithDeadline", "WithDeadlineCause", "WithTimeout", "WithTimeoutCause"},
	"fmt":     {"Print", "Printf", "Println"},
	"time":    {"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"},

	"k8s.io/apimachinery/pkg/apis/meta/v1": {"Now", "NowMicro"},
}

// heavy modules have no place in the root module, whichever package wants them: with their replace directives
// `go install` of the commands would be refused. What needs them lives in a module of its own.
var heavy = []string{"k8s.io/kubernetes/..."}
