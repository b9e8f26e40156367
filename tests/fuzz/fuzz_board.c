/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of launchers' boards: any bytes end in a value that looks like addresses, or in an error. */
#include "fuzz.h"

#include <sys/socket.h>
#include <unistd.h>

#include "group/board.h"
#include "group/board_pmi.h"

static dtp_ctx *ctx;

static void talk(const char *kind, const uint8_t *data, size_t bytes)
{
    char value[DTPI_BOARD_VALUE];
    dtpi_board *board = NULL;
    int fds[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
        return;
    if (bytes > 0 && send(fds[1], data, bytes, MSG_DONTWAIT) < 0)
        bytes = 0;
    shutdown(fds[1], SHUT_WR);
    const dtpi_board_opts o = { .kind = kind, .fd = fds[0], .job = "j", .world_size = 2 };
    if (dtpi_board_open(ctx, &o, INT64_MAX, &board, NULL) >= 0) {
        if (dtpi_board_get(board, "root", value, 0, NULL) >= 0)
            FUZZ_CHECK(dtpi_board_value_ok(value, strlen(value)));
        if (dtpi_board_sync(board, INT64_MAX, NULL) >= 0)
            dtpi_board_put(board, "root", "1.2.3.4:5", INT64_MAX, NULL);
    }
    dtpi_board_close(board);
    close(fds[0]);
    close(fds[1]);
}

static void read_fields(const uint8_t *data, size_t bytes)
{
    char text[512], value[64];
    size_t n;

    const size_t len = DTPI_MIN(bytes, sizeof(text) - 1);
    memcpy(text, data, len);
    text[len] = '\0';
    if (board_pmi1_field(text, "rc", value, sizeof(value)))
        FUZZ_CHECK(strlen(value) < sizeof(value));
    if (board_pmi2_field(text, "rc", value, sizeof(value)))
        FUZZ_CHECK(strlen(value) < sizeof(value));
    if (len >= 6 && board_pmi2_length(text, 100, &n))
        FUZZ_CHECK(n >= 1 && n <= 100);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const kinds[] = { "pmi1", "pmi2", "tcpstore" };

    if (!ctx && dtp_ctx_open(NULL, &ctx, NULL) < 0)
        return 0;
    if (bytes == 0 || bytes > 8192)
        return 0;
    read_fields(data + 1, bytes - 1);
    talk(kinds[data[0] % 3], data + 1, bytes - 1);
    return 0;
}
