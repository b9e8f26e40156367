/* SPDX-License-Identifier: Apache-2.0 */
/* export.h - writes an open checkpoint out as a Hugging Face model: plain safetensors files and an index. */
#ifndef DTPI_CKPT_EXPORT_H
#define DTPI_CKPT_EXPORT_H

#include "ckpt/load.h"

/* As dtp_ckpt_export; `opts` of the library's own size. */
dtp_status dtpi_export(dtpi_load *l, const char *dir, const dtp_ckpt_export_opts *opts,
                       dtp_error *err);

#endif /* DTPI_CKPT_EXPORT_H */
