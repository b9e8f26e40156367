/* SPDX-License-Identifier: Apache-2.0 */
/* failcall.h - what the preloaded system calls offer to the test; absent where they are not preloaded. */
#ifndef DTP_TESTS_FAILCALL_H
#define DTP_TESTS_FAILCALL_H

/*
 * The nth system call of this process from now on fails once, with the `variant`-th of the errors
 * that such a call may give.
 */
void failcall_arm(long nth, unsigned variant) __attribute__((weak));
/* Name of the call that failed since then, NULL: none; and its error. */
const char *failcall_disarm(int *errno_out) __attribute__((weak));

/* Questions to a name service that this process has asked. */
int failcall_n_names(void) __attribute__((weak));

#endif /* DTP_TESTS_FAILCALL_H */
