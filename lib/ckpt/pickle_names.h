/* SPDX-License-Identifier: Apache-2.0 */
/* pickle_names.h - the list of classes and functions that a pickle may name. */
#ifndef DTPI_CKPT_PICKLE_NAMES_H
#define DTPI_CKPT_PICKLE_NAMES_H

#include "ckpt/pickle.h"

typedef struct dtpi_pk_listed {
    const char *module, *text;
    dtpi_pk_name name;
    dtp_dtype dtype;            /* of DTYPE and STORAGE */
} dtpi_pk_listed;

/* NULL: it is not in the list. */
const dtpi_pk_listed *dtpi_pk_find_name(const char *module, size_t module_bytes, const char *text,
                                        size_t bytes);

#endif /* DTPI_CKPT_PICKLE_NAMES_H */
