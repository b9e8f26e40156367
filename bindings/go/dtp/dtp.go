// SPDX-License-Identifier: Apache-2.0

// Package dtp binds libdtp: process groups, collectives, topology, and reading of checkpoints.
//
// Every handle has Close, which may be called twice. A call that waits takes a context.Context; when
// that ends, the call ends within about 50 ms. A handle is used by one goroutine at a time: a second
// one gets ErrBusy. Errors carry libdtp's status and text: errors.Is(err, dtp.ErrTimeout).
package dtp

/*
#cgo pkg-config: libdtp
#include <dtp/dtp.h>
*/
import "C"

import (
	"fmt"
	"math"
	"syscall"
)

// Unknown is the value of a number that nobody knows; it is never 0.
const Unknown = math.MinInt64

// Status is a libdtp status; as an error it is what errors.Is compares with.
type Status int

// The statuses of dtp/base.h.
const (
	ErrInvalid     = Status(C.DTP_ERR_INVAL)
	ErrNoMemory    = Status(C.DTP_ERR_NOMEM)
	ErrIO          = Status(C.DTP_ERR_IO)
	ErrTimeout     = Status(C.DTP_ERR_TIMEOUT)
	ErrBusy        = Status(C.DTP_ERR_BUSY)
	ErrCanceled    = Status(C.DTP_ERR_CANCELED)
	ErrAborted     = Status(C.DTP_ERR_ABORTED)
	ErrForked      = Status(C.DTP_ERR_FORKED)
	ErrNotFound    = Status(C.DTP_ERR_NOT_FOUND)
	ErrExists      = Status(C.DTP_ERR_EXISTS)
	ErrUnsupported = Status(C.DTP_ERR_UNSUPPORTED)
	ErrPerm        = Status(C.DTP_ERR_PERM)
	ErrAuth        = Status(C.DTP_ERR_AUTH)
	ErrFormat      = Status(C.DTP_ERR_FORMAT)
	ErrTruncated   = Status(C.DTP_ERR_TRUNCATED)
	ErrCorrupt     = Status(C.DTP_ERR_CORRUPT)
	ErrRange       = Status(C.DTP_ERR_RANGE)
	ErrNoSpace     = Status(C.DTP_ERR_NOSPC)
	ErrProtocol    = Status(C.DTP_ERR_PROTO)
	ErrVersion     = Status(C.DTP_ERR_VERSION)
	ErrPeer        = Status(C.DTP_ERR_PEER)
	ErrLimit       = Status(C.DTP_ERR_LIMIT)
	ErrExec        = Status(C.DTP_ERR_EXEC)
	ErrInterrupted = Status(C.DTP_ERR_INTERRUPTED)
)

// Error is libdtp's short text of the status.
func (s Status) Error() string {
	return C.GoString(C.dtp_status_text(C.dtp_status(s)))
}

// Error is a failed call.
type Error struct {
	Status Status
	Text   string        // one line, which names the object
	Noun   string        // the part that failed: "topo", "group", ...
	Rank   int           // the rank concerned, or -1
	Errno  syscall.Errno // the system's number, or 0
	cause  error         // why a context.Context ended
}

func (e *Error) Error() string { return e.Text }

// Is makes errors.Is(err, dtp.ErrTimeout) true for the error's status.
func (e *Error) Is(target error) bool { return target == e.Status }

// Unwrap is the cause of a cancelled context, or the system's number.
func (e *Error) Unwrap() error {
	if e.cause != nil {
		return e.cause
	}
	if e.Errno != 0 {
		return e.Errno
	}
	return nil
}

// newError makes an error of a negative status and the detail in detail, nil where it was no failure.
func newError(status C.dtp_status, detail *C.dtp_error) error {
	if status >= 0 {
		return nil
	}
	e := &Error{Status: Status(status), Text: Status(status).Error(), Rank: -1}
	if detail.status == C.int32_t(status) && detail.text[0] != 0 {
		e.Text = C.GoString(&detail.text[0])
		e.Noun = C.GoString(&detail.noun[0])
		e.Rank = int(detail.rank)
		e.Errno = syscall.Errno(detail.sys_errno)
	}
	return e
}

func closedError(noun string) error {
	return &Error{Status: ErrInvalid, Text: fmt.Sprintf("the %s is closed", noun), Noun: noun, Rank: -1}
}

// Version is the version of the loaded library.
func Version() string { return C.GoString(C.dtp_version()) }
