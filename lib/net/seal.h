/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seal.h - what protects the messages of one direction of a connection: a MAC over counter, head and
 * bytes, or encryption that authenticates the same. Pure.
 *
 * The counter is part of what is authenticated: a message that is replayed, left out or put elsewhere
 * does not fit. Keys differ by direction and connection: nor does one that is reflected or spliced in.
 */
#ifndef DTPI_NET_SEAL_H
#define DTPI_NET_SEAL_H

#include "base/base.h"

enum { DTPI_SEAL_KEY_BYTES = 32, DTPI_SEAL_TAG_BYTES = 16 };

typedef struct dtpi_seal {
    uint8_t key[DTPI_SEAL_KEY_BYTES];
    bool encrypts;
} dtpi_seal;

/*
 * Message `count` of this direction. Without encryption `data` stays as it is and `out` is not used;
 * with it `out` (may be `data`) gets as many bytes. `head` goes in the clear, authenticated.
 */
void dtpi_seal_close(const dtpi_seal *s, uint64_t count, const void *head, size_t n_head,
                     const uint8_t *data, size_t bytes, uint8_t *out, uint8_t *tag_out);
/* Checks the tag and decrypts in place. False: not what was sealed; `data` is then worth nothing. */
bool dtpi_seal_open(const dtpi_seal *s, uint64_t count, const void *head, size_t n_head,
                    uint8_t *data, size_t bytes, const uint8_t *tag);
/* The seal of another carrier of the same direction. */
void dtpi_seal_derive(const dtpi_seal *s, const char *label, dtpi_seal *out);

#endif /* DTPI_NET_SEAL_H */
