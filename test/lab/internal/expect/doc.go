// Package expect says what sample Jobs should come to, and in what way what they came to differs. It talks to no
// cluster.
package expect
