package ledger

import "sync"

// pieceLen is how many nodes share a piece of a list.
const pieceLen = 64

// nodeList is a list of nodes that two versions share but for the pieces in which they differ, so that a change costs no copy
// of thousands of nodes. Its pieces are never changed once it was handed out.
type nodeList struct {
	pieces []*[pieceLen]*Node
	len    int
	whole  *wholeList
}

// wholeList is a nodeList as one, made when it is first asked for.
type wholeList struct {
	once sync.Once
	list []*Node
}

func listOf(nodes []*Node) nodeList {
	l := nodeList{len: len(nodes), pieces: make([]*[pieceLen]*Node, (len(nodes)+pieceLen-1)/pieceLen), whole: &wholeList{}}
	for i := range l.pieces {
		l.pieces[i] = &[pieceLen]*Node{}
		copy(l.pieces[i][:], nodes[i*pieceLen:])
	}
	return l
}

func (l *nodeList) at(i int) *Node { return l.pieces[i/pieceLen][i%pieceLen] }

// all returns the list as one; it is read-only.
func (l *nodeList) all() []*Node {
	if l.whole == nil {
		return nil
	}
	l.whole.once.Do(func() {
		l.whole.list = make([]*Node, l.len)
		for i := range l.pieces {
			copy(l.whole.list[i*pieceLen:], l.pieces[i][:])
		}
	})
	return l.whole.list
}

// edit is a list that is being changed: its pieces are copied as they are.
type edit struct {
	nodeList
	own map[int]bool
}

func (l *nodeList) edit() *edit {
	e := &edit{nodeList: nodeList{pieces: make([]*[pieceLen]*Node, len(l.pieces)), len: l.len, whole: &wholeList{}}, own: map[int]bool{}}
	copy(e.pieces, l.pieces)
	return e
}

func (e *edit) set(i int, n *Node) {
	if p := i / pieceLen; !e.own[p] {
		e.own[p] = true
		piece := *e.pieces[p]
		e.pieces[p] = &piece
	}
	e.pieces[i/pieceLen][i%pieceLen] = n
}
