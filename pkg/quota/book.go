package quota

import (
	"fmt"
	"slices"
	"strconv"
	"sync"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	config "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	schdcache "sigs.k8s.io/kueue/pkg/cache/scheduler"
	"sigs.k8s.io/kueue/pkg/features"
	"sigs.k8s.io/kueue/pkg/scheduler/preemption"
	"sigs.k8s.io/kueue/pkg/workload"
)

// Options say how the cluster's Kueue is set up.
type Options struct {
	// Configuration is Kueue's own. Nil is Kueue's default, which has no fair sharing. Of it are used: fairSharing,
	// resources.excludeResourcePrefixes, resources.transformations and waitForPodsReady.requeuingStrategy.timestamp.
	Configuration *config.Configuration
}

// Gates returns the names of Kueue's feature gates that an answer depends on, sorted. They are global to the process
// (k8s.io/apiserver's default feature gate): who makes a Book sets them first to what the cluster's Kueue has.
func Gates() []string {
	return []string{
		string(features.FairSharingPreemptWithinNominal),
		string(features.FlavorFungibility),
		string(features.PartialAdmission),
		string(features.PriorityBoost),
		string(features.PrioritySortingWithinCohort),
		string(features.ReclaimablePods),
		string(features.SchedulerTimestampPreemptionBuffer),
	}
}

// rules are what Kueue's configuration makes of a question. They never change.
type rules struct {
	fairly bool
	info   []workload.InfoOption
	cache  []schdcache.Option
	// preemptor finds victims; alone does it for queues without a cohort.
	preemptor, alone *preemption.Preemptor
}

func newRules(c *config.Configuration) (*rules, error) {
	if c == nil {
		c = &config.Configuration{}
	}
	r := &rules{fairly: c.FairSharing != nil}
	if r.fairly {
		for _, s := range c.FairSharing.PreemptionStrategies {
			if s != config.LessThanOrEqualToFinalShare && s != config.LessThanInitialShare {
				return nil, fmt.Errorf("fairSharing.preemptionStrategies: %q is not one of %s and %s",
					s, config.LessThanOrEqualToFinalShare, config.LessThanInitialShare)
			}
		}
	}
	if res := c.Resources; res != nil {
		r.info = []workload.InfoOption{
			workload.WithExcludedResourcePrefixes(res.ExcludeResourcePrefixes),
			workload.WithResourceTransformations(res.Transformations),
		}
		r.cache = []schdcache.Option{
			schdcache.WithExcludedResourcePrefixes(res.ExcludeResourcePrefixes),
			schdcache.WithResourceTransformations(res.Transformations),
		}
	}
	r.cache = append(r.cache, schdcache.WithFairSharing(r.fairly))
	ordering := workload.Ordering{PodsReadyRequeuingTimestamp: config.EvictionTimestamp}
	if w := c.WaitForPodsReady; w != nil && w.RequeuingStrategy != nil && w.RequeuingStrategy.Timestamp != nil {
		ordering.PodsReadyRequeuingTimestamp = *w.RequeuingStrategy.Timestamp
	}
	preemptor := func(fair *config.FairSharing) *preemption.Preemptor {
		// The nil client, recorder and expectations are for issuing preemptions, which nobody here does. The clock is
		// asked for when a victim's reservation has no time, which there is none of in a book.
		return preemption.New(nil, ordering, nil, fair, false, still{}, nil, nil, nil)
	}
	r.preemptor = preemptor(c.FairSharing)
	// Kueue 0.17.0's fair preemption dereferences nil for a queue without a cohort when the candidates do not suffice
	// (kueue#10891). Without a cohort both ways see the same candidates in the same order, and the classical one is safe.
	r.alone = preemptor(nil)
	return r, nil
}

// Book knows what Kueue's scheduler knows: queues, cohorts, flavors, checks and who holds quota. Its answers depend on the
// objects alone, not on the order in which they came. It is safe for concurrent use.
type Book struct {
	rules *rules

	mu      sync.Mutex
	version int64
	seen    map[ref]sight
	graves  []ref
	objects [kinds]map[string]client.Object
	holders lent[types.UID, workload.Reference]
	local   lent[string, *kueue.LocalQueue]
	queues  lent[string, *kueue.ClusterQueue]
	reads   reads
	// cache is Kueue's own; nil when it has to be built anew.
	cache *schdcache.Cache
	// turns counts, by root cohort, the changes of who holds quota below it; all counts every other change. Roots are those of the
	// ClusterQueues that the cache was built with.
	turns map[string]int64
	all   int64
	roots map[string]string
	// faults say what is wrong with the queues that Kueue's cache could not take.
	faults map[string]string
}

// tombstones is how many objects that are gone are remembered, so that late news of them changes nothing.
const tombstones = 4096

// sight is the newest that is known of an object.
type sight struct {
	resourceVersion uint64
	gone            bool
}

// New returns an empty book at version 0. It fails for a configuration that Kueue would refuse too.
func New(o Options) (*Book, error) {
	r, err := newRules(o.Configuration)
	if err != nil {
		return nil, fmt.Errorf("kueue configuration: %w", err)
	}
	b := &Book{rules: r, seen: map[ref]sight{}}
	for k := range b.objects {
		b.objects[k] = map[string]client.Object{}
	}
	return b, nil
}

// Apply takes an object as it is, or as gone: a ClusterQueue, Cohort, LocalQueue, ResourceFlavor, AdmissionCheck, Workload,
// Namespace, LimitRange or RuntimeClass; others change nothing. The same news twice, or older news than what is known,
// change nothing; an object without a resourceVersion counts as news. It returns whether an answer may have changed: a
// Workload matters only while it holds quota, and of the status of objects only what Kueue's scheduler reads.
//
// The book keeps parts of the object, which must not be changed afterwards.
func (b *Book) Apply(obj client.Object, gone bool) bool {
	kind, kept := keep(obj)
	if kind == kinds {
		return false
	}
	if gone {
		kept = nil
	}
	at := ref{kind: kind, name: nameOf(obj)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.news(at, obj.GetResourceVersion(), gone) {
		return false
	}
	old := b.objects[kind][at.name]
	if old == nil && kept == nil || old != nil && kept != nil && apiequality.Semantic.DeepEqual(old, kept) {
		return false
	}
	if kept == nil {
		delete(b.objects[kind], at.name)
	} else {
		b.objects[kind][at.name] = kept
	}
	b.follow(kind, old, kept)
	b.version++
	return true
}

// news notes a version of an object, and says whether it is newer than what is known.
func (b *Book) news(at ref, resourceVersion string, gone bool) bool {
	last, known := b.seen[at]
	version, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		version = last.resourceVersion
	} else if known && (version < last.resourceVersion || version == last.resourceVersion && (last.gone || !gone)) {
		return false
	}
	b.seen[at] = sight{resourceVersion: version, gone: gone}
	if gone && !last.gone {
		b.bury(at)
	}
	return true
}

// bury remembers that an object is gone, and forgets the oldest grave when there are too many.
func (b *Book) bury(at ref) {
	b.graves = append(b.graves, at)
	if len(b.graves) <= tombstones {
		return
	}
	oldest := b.graves[0]
	b.graves = b.graves[1:]
	if b.seen[oldest].gone && !slices.Contains(b.graves, oldest) {
		delete(b.seen, oldest)
	}
}

// Version returns the number of changes so far that an answer may depend on.
func (b *Book) Version() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.version
}
