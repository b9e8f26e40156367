/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz.h - what every fuzz target includes: the entry point, a check and terminated copies. */
#ifndef DTP_TESTS_FUZZ_H
#define DTP_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One input; must not crash, hang, leak or allocate out of proportion. Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Something that must hold for every input, such as a round trip. */
#define FUZZ_CHECK(cond)                                                                            \
    do {                                                                                            \
        if (!(cond)) {                                                                              \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #cond);               \
            abort();                                                                                \
        }                                                                                           \
    } while (0)

/* A terminated copy of exactly bytes + 1 bytes (free it), for parsers of text. */
static inline char *fuzz_text(const uint8_t *data, size_t bytes)
{
    char *text = malloc(bytes + 1);

    FUZZ_CHECK(text);
    if (bytes)
        memcpy(text, data, bytes);
    text[bytes] = '\0';
    return text;
}

#endif /* DTP_TESTS_FUZZ_H */
