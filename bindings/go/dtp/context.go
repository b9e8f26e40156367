// SPDX-License-Identifier: Apache-2.0

package dtp

/*
#include <stdlib.h>
#include <dtp/dtp.h>

// Asked by waiting calls; a word in C memory, so that no call from C into Go is needed.
static int dtp_go_interrupted(void *user)
{
	return __atomic_load_n((int *)user, __ATOMIC_RELAXED);
}

static void dtp_go_set(int *flag, int value)
{
	__atomic_store_n(flag, value, __ATOMIC_RELAXED);
}

static dtp_status dtp_go_ctx_open(int *flag, const char *module_dir, dtp_ctx **ctx_out, dtp_error *err)
{
	dtp_ctx_opts opts = DTP_CTX_OPTS_INIT;
	opts.interrupted = dtp_go_interrupted;
	opts.interrupted_user = flag;
	opts.module_dir = module_dir;
	return dtp_ctx_open(&opts, ctx_out, err);
}
*/
import "C"

import (
	"context"
	"math"
	"runtime"
	"sync"
	"time"
	"unsafe"
)

// Context is what everything else hangs off.
type Context struct {
	ptr  *C.dtp_ctx
	flag *C.int     // not 0: waiting calls shall end
	mu   sync.Mutex // held by the call that is under way
}

// ContextOptions may be nil.
type ContextOptions struct {
	ModuleDir string // where driver modules lie; "": beside the library
}

// Open opens a context. It starts no thread and installs no signal handler.
func Open(opts *ContextOptions) (*Context, error) {
	var moduleDir *C.char
	if opts != nil && opts.ModuleDir != "" {
		moduleDir = C.CString(opts.ModuleDir)
		defer C.free(unsafe.Pointer(moduleDir))
	}
	c := &Context{flag: (*C.int)(C.calloc(1, C.sizeof_int))}
	var detail C.dtp_error
	if err := newError(C.dtp_go_ctx_open(c.flag, moduleDir, &c.ptr, &detail), &detail); err != nil {
		C.free(unsafe.Pointer(c.flag))
		return nil, err
	}
	return c, nil
}

// Close closes the context; everything opened on it must be closed before.
func (c *Context) Close() error {
	if !c.mu.TryLock() {
		return busyError()
	}
	defer c.mu.Unlock()
	if c.ptr != nil {
		C.dtp_ctx_close(c.ptr)
		C.free(unsafe.Pointer(c.flag))
		c.ptr, c.flag = nil, nil
	}
	return nil
}

// Fd is the descriptor for a host's event loop: when it is readable, call Dispatch(0).
func (c *Context) Fd() int {
	fd := -1
	if c.ptr != nil {
		fd = int(C.dtp_ctx_fd(c.ptr))
	}
	runtime.KeepAlive(c)
	return fd
}

// Dispatch runs what is ready, waiting at most timeout (negative: for ever), and tells whether
// something ran.
func (c *Context) Dispatch(timeout time.Duration) (bool, error) {
	var status C.dtp_status
	err := c.call(context.Background(), func(detail *C.dtp_error) C.dtp_status {
		status = C.dtp_ctx_dispatch(c.ptr, C.int(milliseconds(timeout)), detail)
		return status
	})
	return status == C.DTP_OK, err
}

// milliseconds rounds up, so that a short time is not none; negative stays negative, and what is longer
// than libdtp can wait (24 days) becomes that.
func milliseconds(d time.Duration) int32 {
	if d < 0 {
		return -1
	}
	if d > math.MaxInt32*time.Millisecond {
		return math.MaxInt32
	}
	return int32((d + time.Millisecond - 1) / time.Millisecond)
}

func busyError() error {
	return &Error{Status: ErrBusy, Text: "another goroutine is using this context", Noun: "ctx", Rank: -1}
}

// call runs one libdtp call on the context; it ends early when ctx does.
func (c *Context) call(ctx context.Context, fn func(detail *C.dtp_error) C.dtp_status) error {
	if err := ctx.Err(); err != nil {
		return &Error{Status: ErrCanceled, Text: err.Error(), Noun: "ctx", Rank: -1, cause: err}
	}
	if !c.mu.TryLock() {
		return busyError()
	}
	defer c.mu.Unlock()
	if c.ptr == nil {
		return closedError("ctx")
	}
	stop := c.watch(ctx)
	var detail C.dtp_error
	err := newError(fn(&detail), &detail)
	stop()
	if e, ok := err.(*Error); ok && e.Status == ErrInterrupted && ctx.Err() != nil {
		e.cause = ctx.Err()
	}
	return err
}

// watch raises the flag when ctx ends; the function it returns ends the watch.
func (c *Context) watch(ctx context.Context) func() {
	if ctx.Done() == nil {
		return func() {}
	}
	finished, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-ctx.Done():
			C.dtp_go_set(c.flag, 1)
			C.dtp_ctx_wake(c.ptr)
		case <-finished:
		}
	}()
	return func() {
		close(finished)
		<-watched
		C.dtp_go_set(c.flag, 0)
	}
}
