/* SPDX-License-Identifier: Apache-2.0 */
/* stats.c - the clock, and a handful of numbers in place of many. */
#include <stdlib.h>
#include <time.h>

#include "bench.h"

int64_t bench_now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * (int64_t)1000000000 + ts.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

bench_stats bench_summarise(double *values, int n)
{
    qsort(values, (size_t)n, sizeof(*values), compare);
    return (bench_stats){
        .median = n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2,
        .min = values[0],
        .max = values[n - 1],
        .spread = values[n - 1 - n / 4] - values[n / 4],
    };
}
