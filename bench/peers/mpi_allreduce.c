/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mpi_allreduce.c - MPI_Allreduce of f32 sums, timed as dtp-bench does it: batches of two milliseconds, of
 * a batch the slowest rank, of the batches the median. One line of JSON per size on rank 0.
 *
 * Arguments: label min_bytes max_bytes factor.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { WARM = 5, MAX_CALLS = 2000, BATCHES = 21, BATCHES_SLOW = 9 };

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double run(const float *in, float *out, size_t count, int n_calls)
{
    const double start = MPI_Wtime();

    for (int i = 0; i < n_calls; i++)
        MPI_Allreduce(in, out, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    return (MPI_Wtime() - start) / n_calls;
}

static long count_wrong(const float *out, size_t count, int size)
{
    long wrong = 0, all = 0;

    for (size_t i = 0; i < count; i++)
        wrong += out[i] != (float)(size * (size - 1) / 2) + (float)size * (float)(i % 1000);
    MPI_Reduce(&wrong, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    return all;
}

static void measure(const char *label, const float *in, float *out, size_t bytes, int rank, int size)
{
    const size_t count = bytes / sizeof(float);
    const double each = run(in, out, count, WARM);
    double times[BATCHES], slowest[BATCHES];
    int plan[2] = { (int)(0.002 / each), each > 0.01 ? BATCHES_SLOW : BATCHES };

    plan[0] = plan[0] < 1 ? 1 : plan[0] > MAX_CALLS ? MAX_CALLS : plan[0];
    MPI_Bcast(plan, 2, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    run(in, out, count, plan[0]);
    for (int b = 0; b < plan[1]; b++)
        times[b] = run(in, out, count, plan[0]);
    MPI_Reduce(times, slowest, plan[1], MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    const long wrong = count_wrong(out, count, size);
    if (rank != 0)
        return;
    qsort(slowest, (size_t)plan[1], sizeof(slowest[0]), compare);
    const double t = slowest[plan[1] / 2], algbw = (double)bytes / t / 1e9;
    printf("{\"bench\":\"allreduce\",\"peer\":\"%s\",\"ranks\":%d,\"size\":%zu,\"count\":%zu,"
           "\"type\":\"f32\",\"redop\":\"sum\",\"time_us\":%.4f,\"min_us\":%.4f,"
           "\"algbw_gb_per_s\":%.5f,\"busbw_gb_per_s\":%.5f,\"wrong\":%ld}\n",
           label, size, bytes, count, t * 1e6, slowest[0] * 1e6, algbw, algbw * 2 * (size - 1) / size,
           wrong);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    if (argc != 5) {
        fprintf(stderr, "usage: mpi_allreduce LABEL MIN_BYTES MAX_BYTES FACTOR\n");
        return 2;
    }
    const size_t min = strtoull(argv[2], NULL, 10), max = strtoull(argv[3], NULL, 10);
    const size_t factor = strtoull(argv[4], NULL, 10);
    float *in = NULL, *out = NULL;
    int rank, size;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (factor < 2 || min < 4 || posix_memalign((void **)&in, 4096, max) ||
        posix_memalign((void **)&out, 4096, max))
        return 2;
    for (size_t i = 0; i < max / sizeof(float); i++) {
        in[i] = (float)(i % 1000) + (float)rank;
        out[i] = 0;
    }
    for (size_t bytes = min; bytes <= max; bytes *= factor)
        measure(argv[1], in, out, bytes, rank, size);
    free(in);
    free(out);
    MPI_Finalize();
    return 0;
}
