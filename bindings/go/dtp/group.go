// SPDX-License-Identifier: Apache-2.0

package dtp

/*
#include <stdlib.h>
#include <dtp/dtp.h>

static dtp_status dtp_go_group_join(dtp_ctx *ctx, dtp_group_opts *opts, const char *job,
                                    const char *root, const char *agent, const char *net,
                                    const char *parent, const char *listen, const char *munge,
                                    const uint8_t *secret, dtp_group **group_out, dtp_error *err)
{
	opts->size = sizeof(*opts);
	opts->job = job;
	opts->root = root;
	opts->agent = agent;
	opts->net = net;
	opts->parent = parent;
	opts->listen = listen;
	opts->munge = munge;
	opts->secret = secret;
	return dtp_group_join(ctx, opts, group_out, err);
}
*/
import "C"

import (
	"context"
	"fmt"
	"runtime"
	"time"
	"unsafe"
)

// Redop is how allreduce combines.
type Redop int

// The operations of dtp/coll.h.
const (
	Sum  = Redop(C.DTP_SUM)
	Min  = Redop(C.DTP_MIN)
	Max  = Redop(C.DTP_MAX)
	Prod = Redop(C.DTP_PROD)
	Avg  = Redop(C.DTP_AVG)
)

// Number is what collectives take.
type Number interface {
	float64 | float32 | int64 | int32 | uint8
}

func dtypeOf[T Number]() C.dtp_dtype {
	var zero T
	switch any(zero).(type) {
	case float64:
		return C.DTP_F64
	case float32:
		return C.DTP_F32
	case int64:
		return C.DTP_I64
	case int32:
		return C.DTP_I32
	}
	return C.DTP_U8
}

// RankNew is the rank of who comes to a group that stands: Join waits until its Reform takes it in.
const RankNew = int(C.DTP_RANK_NEW)

// GroupOptions describe a group to join; zero values are the defaults of dtp_group_opts.
type GroupOptions struct {
	Rank, WorldSize      int // WorldSize 0: a group of one
	LocalRank, LocalSize int
	Job                  string
	Attempt              uint32
	Root, Agent, Net     string
	Secret               []byte // 32 bytes
	Insecure             bool
	Timeout              time.Duration
	Node, NNodes, Radix  int    // place in the tree of agents; zero: the root gives it
	Parent, Listen       string // candidates of the parent agent; where this node's agent listens
	Encrypt              bool   // control between nodes; every node must agree
	Munge                string // socket of munged, which hands the secret over; empty: no
}

// Group is a process group.
type Group struct {
	c   *Context
	ptr *C.dtp_group
}

// JoinFromEnv joins the group that the environment describes (dtp run, torchrun, Slurm, MPI
// launchers); a group of one where there is no launcher.
func JoinFromEnv(ctx context.Context, c *Context) (*Group, error) {
	g := &Group{c: c}
	err := c.call(ctx, func(detail *C.dtp_error) C.dtp_status {
		return C.dtp_group_join_from_env(c.ptr, &g.ptr, detail)
	})
	if err != nil {
		return nil, err
	}
	return g, nil
}

// Join joins the group that opts describe.
func Join(ctx context.Context, c *Context, opts GroupOptions) (*Group, error) {
	if n := len(opts.Secret); n != 0 && n != C.DTP_SECRET_BYTES {
		text := fmt.Sprintf("a secret has %d bytes, not %d", int(C.DTP_SECRET_BYTES), n)
		return nil, &Error{Status: ErrInvalid, Text: text, Noun: "group", Rank: -1}
	}
	texts := [7]*C.char{}
	for i, s := range []string{opts.Job, opts.Root, opts.Agent, opts.Net, opts.Parent, opts.Listen, opts.Munge} {
		texts[i] = optionalText(s)
		defer C.free(unsafe.Pointer(texts[i]))
	}
	var secret *C.uint8_t
	if len(opts.Secret) > 0 {
		secret = (*C.uint8_t)(C.CBytes(opts.Secret))
		defer C.free(unsafe.Pointer(secret))
	}
	o := C.dtp_group_opts{
		rank: C.int32_t(opts.Rank), world_size: C.int32_t(opts.WorldSize),
		local_rank: C.int32_t(opts.LocalRank), local_size: C.int32_t(opts.LocalSize),
		attempt: C.uint32_t(opts.Attempt), timeout_ms: C.int32_t(milliseconds(opts.Timeout)),
		node: C.int32_t(opts.Node), n_nodes: C.int32_t(opts.NNodes), radix: C.int32_t(opts.Radix),
	}
	if opts.Insecure {
		o.insecure = 1
	}
	if opts.Encrypt {
		o.encrypt = 1
	}
	g := &Group{c: c}
	err := c.call(ctx, func(detail *C.dtp_error) C.dtp_status {
		return C.dtp_go_group_join(c.ptr, &o, texts[0], texts[1], texts[2], texts[3], texts[4],
			texts[5], texts[6], secret, &g.ptr, detail)
	})
	if err != nil {
		return nil, err
	}
	return g, nil
}

// Close leaves the group: the end of this rank is no failure any more.
func (g *Group) Close() error {
	if g.ptr == nil {
		return nil
	}
	return g.c.call(context.Background(), func(*C.dtp_error) C.dtp_status {
		C.dtp_group_close(g.ptr)
		g.ptr = nil
		return C.DTP_OK
	})
}

// Rank of this process; -1 where the group is closed.
func (g *Group) Rank() int {
	return g.number(func(p *C.dtp_group) C.int32_t { return C.dtp_group_rank(p) })
}

// Size of the group; -1 where it is closed.
func (g *Group) Size() int {
	return g.number(func(p *C.dtp_group) C.int32_t { return C.dtp_group_size(p) })
}

// LocalRank is the rank among those of this machine.
func (g *Group) LocalRank() int {
	return g.number(func(p *C.dtp_group) C.int32_t { return C.dtp_group_local_rank(p) })
}

// LocalSize is the number of ranks on this machine.
func (g *Group) LocalSize() int {
	return g.number(func(p *C.dtp_group) C.int32_t { return C.dtp_group_local_size(p) })
}

// Attempt counts the starts of the gang.
func (g *Group) Attempt() int {
	return g.number(func(p *C.dtp_group) C.int32_t { return C.int32_t(C.dtp_group_attempt(p)) })
}

// Generation counts the memberships inside an attempt, from 1: one more after each Reform.
func (g *Group) Generation() int {
	return g.number(func(p *C.dtp_group) C.int32_t { return C.int32_t(C.dtp_group_generation(p)) })
}

// Waiting is the number of newcomers (RankNew) that wait for a Reform, as far as this node knows.
func (g *Group) Waiting() int {
	return g.number(func(p *C.dtp_group) C.int32_t { return C.dtp_group_n_waiting(p) })
}

func (g *Group) number(get func(*C.dtp_group) C.int32_t) int {
	if g.ptr == nil {
		return -1
	}
	defer runtime.KeepAlive(g)
	return int(get(g.ptr))
}

// call runs fn unless the group is closed.
func (g *Group) call(ctx context.Context, fn func(detail *C.dtp_error) C.dtp_status) error {
	if g.ptr == nil {
		return closedError("group")
	}
	defer runtime.KeepAlive(g)
	return g.c.call(ctx, fn)
}

// Barrier returns when all ranks have called it.
func (g *Group) Barrier(ctx context.Context) error {
	return g.call(ctx, func(detail *C.dtp_error) C.dtp_status {
		return C.dtp_group_barrier(g.ptr, 0, detail)
	})
}

// Allgather gathers bytes of each rank, of any lengths (at most 1 MiB together), on all ranks.
func (g *Group) Allgather(ctx context.Context, data []byte) ([][]byte, error) {
	var joined unsafe.Pointer
	var total C.size_t
	sizes := make([]C.size_t, g.Size()+1)
	err := g.call(ctx, func(detail *C.dtp_error) C.dtp_status {
		return C.dtp_group_allgather(g.ptr, firstByte(data), C.size_t(len(data)), &joined, &sizes[0],
			&total, 0, detail)
	})
	if err != nil {
		return nil, err
	}
	defer C.dtp_group_free(joined)
	all := unsafe.Slice((*byte)(joined), int(total))
	parts := make([][]byte, len(sizes)-1)
	for i := range parts {
		parts[i] = append([]byte{}, all[:sizes[i]]...)
		all = all[sizes[i]:]
	}
	return parts, nil
}

// Topo is the topology of the node of a rank, discovered once per node, and a number that nodes with
// equal topologies share. That of another node is there once a rank of that node has asked for its own.
func (g *Group) Topo(ctx context.Context, rank int) (*Topo, uint64, error) {
	t := &Topo{}
	var id C.uint64_t
	err := g.call(ctx, func(detail *C.dtp_error) C.dtp_status {
		return C.dtp_group_topo(g.ptr, C.int32_t(rank), &t.ptr, &id, 0, detail)
	})
	if err != nil {
		return nil, 0, err
	}
	return t, uint64(id), nil
}

func firstByte(data []byte) unsafe.Pointer {
	if len(data) == 0 {
		return nil
	}
	return unsafe.Pointer(&data[0])
}

// Reform gives the survivors a new group, one generation later, without those that were lost; with
// fewer than minSize ranks there is none. Collective over the live ranks; the old group is over.
func (g *Group) Reform(ctx context.Context, timeout time.Duration, minSize int) (*Group, error) {
	next := &Group{c: g.c}
	err := g.call(ctx, func(detail *C.dtp_error) C.dtp_status {
		opts := C.dtp_reform_opts{timeout_ms: C.int32_t(milliseconds(timeout)), min_size: C.int32_t(minSize)}
		opts.size = C.sizeof_dtp_reform_opts
		return C.dtp_group_reform(g.ptr, &opts, &next.ptr, detail)
	})
	if err != nil {
		return nil, err
	}
	return next, nil
}

// Abort ends the group for all ranks: each blocked or later call returns ErrAborted.
func (g *Group) Abort(reason string) {
	if g.ptr != nil {
		text := C.CString(reason)
		defer C.free(unsafe.Pointer(text))
		C.dtp_group_abort(g.ptr, text)
	}
	runtime.KeepAlive(g)
}

// Failed are the ranks that failed, ascending.
func (g *Group) Failed() []int {
	if g.ptr == nil {
		return nil
	}
	defer runtime.KeepAlive(g)
	ranks := make([]C.int32_t, C.dtp_group_failed(g.ptr, nil, 0)+1)
	n := int(C.dtp_group_failed(g.ptr, &ranks[0], C.size_t(len(ranks))))
	if n > len(ranks) {
		n = len(ranks)
	}
	failed := make([]int, n)
	for i := range failed {
		failed[i] = int(ranks[i])
	}
	return failed
}

// Allreduce reduces data over all ranks, in place: the same bits on every rank and in every run.
func Allreduce[T Number](ctx context.Context, g *Group, data []T, op Redop) error {
	var p unsafe.Pointer
	if len(data) > 0 {
		p = unsafe.Pointer(&data[0])
	}
	return g.call(ctx, func(detail *C.dtp_error) C.dtp_status {
		return C.dtp_allreduce(g.ptr, p, p, C.size_t(len(data)), dtypeOf[T](), C.dtp_redop(op), 0, detail)
	})
}

// Broadcast gives the data of root to all, in place.
func Broadcast[T Number](ctx context.Context, g *Group, data []T, root int) error {
	var p unsafe.Pointer
	if len(data) > 0 {
		p = unsafe.Pointer(&data[0])
	}
	return g.call(ctx, func(detail *C.dtp_error) C.dtp_status {
		return C.dtp_broadcast(g.ptr, p, C.size_t(len(data)), dtypeOf[T](), C.int32_t(root), 0, detail)
	})
}
