// SPDX-License-Identifier: Apache-2.0

// Package made saves a small checkpoint for the tests: the binding itself only reads, and test files
// cannot use cgo.
package made

/*
#cgo pkg-config: libdtp
#include <stdlib.h>
#include <dtp/dtp.h>

// "w": f32 3 x 4, 0 .. 11; "n": i64 without dimensions, 7.
static dtp_status save(const char *dir, uint64_t step, dtp_error *err)
{
	static const int64_t w_shape[2] = { 3, 4 };
	float w[12];
	int64_t n = 7;
	for (int i = 0; i < 12; i++)
		w[i] = (float)i;
	const dtp_ckpt_tensor tensors[2] = {
		{ .size = sizeof(dtp_ckpt_tensor), .name = "w", .dtype = DTP_F32, .n_dims = 2,
		  .shape = w_shape, .data = w },
		{ .size = sizeof(dtp_ckpt_tensor), .name = "n", .dtype = DTP_I64, .data = &n },
	};
	dtp_ckpt_save_opts opts = DTP_CKPT_SAVE_OPTS_INIT;
	opts.meta_json = "{\"epoch\":3}";
	dtp_ctx *ctx;
	dtp_status st = dtp_ctx_open(NULL, &ctx, err);
	if (st < 0)
		return st;
	st = dtp_ckpt_save(ctx, NULL, dir, step, tensors, 2, &opts, err);
	dtp_ctx_close(ctx);
	return st;
}
*/
import "C"

import (
	"errors"
	"unsafe"
)

// Save saves the checkpoint as a step under dir.
func Save(dir string, step uint64) error {
	text := C.CString(dir)
	defer C.free(unsafe.Pointer(text))
	var detail C.dtp_error
	if C.save(text, C.uint64_t(step), &detail) < 0 {
		return errors.New(C.GoString(&detail.text[0]))
	}
	return nil
}
