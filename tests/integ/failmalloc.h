/* SPDX-License-Identifier: Apache-2.0 */
/* failmalloc.h - what the preloaded allocator offers to the test; absent where it is not preloaded.
 */
#ifndef DTP_TESTS_FAILMALLOC_H
#define DTP_TESTS_FAILMALLOC_H

/* The nth allocation from now on fails, once. */
void failmalloc_arm(long nth) __attribute__((weak));
/* Whether one failed since then. */
int failmalloc_disarm(void) __attribute__((weak));
/* Blocks that were allocated and not freed. */
long failmalloc_alive(void) __attribute__((weak));

#endif /* DTP_TESTS_FAILMALLOC_H */
