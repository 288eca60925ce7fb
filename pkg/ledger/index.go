package ledger

import (
	"iter"

	"k8s.io/apimachinery/pkg/types"
)

// index finds objects by what they name. Most of its sets have one member, of which there is one for each device and pod: those
// cost no map of their own.
type index[K comparable] map[K]uids

// uids is a set of uids. The zero value is empty.
type uids struct {
	one  types.UID
	more map[types.UID]struct{}
}

// all returns the members, in no particular order.
func (s uids) all() iter.Seq[types.UID] {
	return func(yield func(types.UID) bool) {
		if s.one != "" && !yield(s.one) {
			return
		}
		for uid := range s.more {
			if !yield(uid) {
				return
			}
		}
	}
}

func (s uids) has(uid types.UID) bool {
	_, more := s.more[uid]
	return more || uid != "" && s.one == uid
}

func (s uids) len() int {
	if s.one == "" {
		return len(s.more)
	}
	return len(s.more) + 1
}

// link adds uid to the set at key; the zero key has no set.
func link[K comparable](to index[K], at K, uid types.UID) {
	var none K
	if at == none || uid == "" {
		return
	}
	s := to[at]
	if _, there := s.more[uid]; there || s.one == uid {
		return
	}
	if s.one == "" {
		s.one = uid
	} else {
		if s.more == nil {
			s.more = map[types.UID]struct{}{}
		}
		s.more[uid] = struct{}{}
	}
	to[at] = s
}

// unlink takes uid from the set at key, and the set with its last member.
func unlink[K comparable](from index[K], at K, uid types.UID) {
	s, ok := from[at]
	if !ok {
		return
	}
	if s.one == uid {
		s.one = ""
	} else {
		delete(s.more, uid)
	}
	if s.len() == 0 {
		delete(from, at)
		return
	}
	from[at] = s
}
