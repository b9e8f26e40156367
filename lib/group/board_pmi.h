/* SPDX-License-Identifier: Apache-2.0 */
/* board_pmi.h - the parts of PMI's two wire protocols that read what a launcher says. */
#ifndef DTPI_GROUP_BOARD_PMI_H
#define DTPI_GROUP_BOARD_PMI_H

#include "base/base.h"

/*
 * PMI-1: the value of `name` in "cmd=get_result rc=0 value=x", into `value_out`. False where it is not
 * there or does not fit.
 */
bool board_pmi1_field(const char *line, const char *name, char *value_out, size_t room);
/* PMI-2: the same for "cmd=kvs-get-response;rc=0;value=x;", where ";;" stands for one ';'. */
bool board_pmi2_field(const char *text, const char *name, char *value_out, size_t room);
/* PMI-2: the length of what follows, from its six characters; false where they are no number <= max. */
bool board_pmi2_length(const char *six, size_t max, size_t *bytes_out);

#endif /* DTPI_GROUP_BOARD_PMI_H */
