/* SPDX-License-Identifier: Apache-2.0 */
/* board_list.c - the boards that were built in; PMIx is a module. */
#include "group/board.h"

const dtpi_board_ops *const dtpi_boards[] = { &dtpi_board_file, &dtpi_board_tcpstore, &dtpi_board_pmi1,
                                              &dtpi_board_pmi2, NULL };
