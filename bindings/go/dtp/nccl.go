// SPDX-License-Identifier: Apache-2.0

package dtp

/*
#include <dtp/dtp.h>
*/
import "C"

import (
	"context"
	"unsafe"
)

// NCCLID is an ncclUniqueId.
type NCCLID [C.DTP_NCCL_ID_BYTES]byte

// NCCLUniqueIDs gives all ranks the same unique ids: one, made by rank 0, where ranksPerID is 0, else
// one for each so many ranks, made by the first of them, for ncclCommInitRankScalable. Collective.
func NCCLUniqueIDs(ctx context.Context, g *Group, ranksPerID int) ([]NCCLID, error) {
	var joined unsafe.Pointer
	var n C.uint32_t
	err := g.call(ctx, func(detail *C.dtp_error) C.dtp_status {
		return C.dtp_nccl_unique_ids(g.ptr, C.int32_t(ranksPerID), &joined, &n, 0, detail)
	})
	if err != nil {
		return nil, err
	}
	defer C.dtp_group_free(joined)
	return append([]NCCLID{}, unsafe.Slice((*NCCLID)(joined), int(n))...), nil
}

// NCCLOptions are those of dtp_nccl_opts; zero values are its defaults.
type NCCLOptions struct {
	RanksPerID int
	Blocking   bool
}

// NCCLComm is an NCCL communicator of all ranks of a group.
type NCCLComm struct {
	c   *Context
	ptr unsafe.Pointer
}

// NCCLInit makes a communicator on the calling thread's CUDA device: lock the thread before. Collective.
func NCCLInit(ctx context.Context, g *Group, opts *NCCLOptions) (*NCCLComm, error) {
	var o C.dtp_nccl_opts
	o.size = C.size_t(unsafe.Sizeof(o))
	if opts != nil {
		o.ranks_per_id = C.int32_t(opts.RanksPerID)
		if opts.Blocking {
			o.blocking = 1
		}
	}
	comm := &NCCLComm{c: g.c}
	err := g.call(ctx, func(detail *C.dtp_error) C.dtp_status {
		return C.dtp_nccl_comm_init(g.ptr, &o, &comm.ptr, detail)
	})
	if err != nil {
		return nil, err
	}
	return comm, nil
}

// Pointer is the ncclComm_t; nil once it is closed.
func (n *NCCLComm) Pointer() unsafe.Pointer {
	return n.ptr
}

// Close ends it with ncclCommDestroy.
func (n *NCCLComm) Close() error {
	return n.end(0)
}

// Abort ends it with ncclCommAbort, which does not wait for the others.
func (n *NCCLComm) Abort() error {
	return n.end(1)
}

func (n *NCCLComm) end(abort C.uint32_t) error {
	if n.ptr == nil {
		return nil
	}
	return n.c.call(context.Background(), func(*C.dtp_error) C.dtp_status {
		C.dtp_nccl_comm_close(n.c.ptr, n.ptr, abort)
		n.ptr = nil
		return C.DTP_OK
	})
}
