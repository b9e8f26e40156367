/* SPDX-License-Identifier: Apache-2.0 */
/*
 * st_oracle.c - what the safetensors reader says of files on its input: 4 bytes of length and the file, over
 * and over. A line for each: "ok NAME:TYPE:DIMS:BEGIN:END ...", the name in hex, in order of names, or the
 * status and its text.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "ckpt/st.h"

static void print_entry(const dtpi_st *st, const dtpi_st_entry *e)
{
    const char *name = dtpi_st_name(st, e);

    putchar(' ');
    for (uint32_t i = 0; i < e->name_bytes; i++)
        printf("%02x", (unsigned char)name[i]);
    printf(":%s:", dtpi_st_entry_type(e)->name);
    for (uint32_t i = 0; i < e->n_dims; i++)
        printf("%s%" PRIu64, i ? "," : "", dtpi_st_dims(st, e)[i]);
    printf(":%" PRIu64 ":%" PRIu64, e->begin, e->end);
}

static dtp_status read_file(const uint8_t *data, size_t bytes, dtpi_st *st, dtp_error *err)
{
    uint8_t prefix[8] = { 0 };
    uint64_t n = 0;

    memcpy(prefix, data, DTPI_MIN(bytes, sizeof(prefix)));
    const dtp_status s = dtpi_st_header_bytes(prefix, bytes, "file", &n, err);
    return s < 0 ? s : dtpi_st_read(&dtpi_malloc_allocator, (const char *)data + 8, n, bytes - 8 - n,
                                    "file", st, err);
}

static void answer(const uint8_t *data, size_t bytes)
{
    dtp_error err = { 0 };
    dtpi_st st;

    const dtp_status s = read_file(data, bytes, &st, &err);
    if (s < 0) {
        printf("%s %s\n", dtp_status_name(s), err.text);
        return;
    }
    printf("ok");
    for (size_t i = 0; i < st.n; i++)
        print_entry(&st, dtpi_st_get(&st, i));
    putchar('\n');
    dtpi_st_free(&st);
}

int main(void)
{
    uint8_t head[4];

    while (fread(head, sizeof(head), 1, stdin) == 1) {
        const size_t bytes = (size_t)head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16 |
                             (size_t)head[3] << 24;
        uint8_t *data = malloc(bytes + 8);
        if (!data || (bytes && fread(data, bytes, 1, stdin) != 1))
            return 1;
        answer(data, bytes);
        free(data);
    }
    return 0;
}
