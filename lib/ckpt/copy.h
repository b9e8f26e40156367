/* SPDX-License-Identifier: Apache-2.0 */
/* copy.h - copies the data of many tensors, with all the memory bandwidth there is. */
#ifndef DTPI_CKPT_COPY_H
#define DTPI_CKPT_COPY_H

#include <dtp/ckpt.h>

/* `to[i].data` gets what `from[i].data` holds; all have been checked. Errors: NOMEM. */
dtp_status dtpi_copy_tensors(dtp_ctx *ctx, const dtp_ckpt_tensor *to, const dtp_ckpt_tensor *from,
                             size_t n, dtp_error *err);

#endif /* DTPI_CKPT_COPY_H */
