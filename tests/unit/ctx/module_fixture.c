/* SPDX-License-Identifier: Apache-2.0 */
/* module_fixture.c - a module for the loader's tests; meson gives it name and interface. */
#include "ctx/ctx.h"

#ifndef FIXTURE_NO_MODULE
static const char ops[] = "operations of " FIXTURE_NAME;

extern DTP_API const dtpi_module dtpi_module_this;
DTP_API const dtpi_module dtpi_module_this = { FIXTURE_ABI, FIXTURE_NAME, ops };
#else
extern DTP_API const int nothing_known;
DTP_API const int nothing_known = 1;
#endif
