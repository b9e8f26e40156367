/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mpi_boot.c - MPI_Init and a barrier: prints how long ago the launcher was started, in ms, when the last
 * rank left the barrier. Arguments: label, time of the start (CLOCK_MONOTONIC in ns).
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv)
{
    struct timespec ts;
    double mine, last;
    int rank, size;

    MPI_Init(&argc, &argv);
    if (argc != 3) {
        fprintf(stderr, "usage: mpi_boot LABEL START_NS\n");
        return 2;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    clock_gettime(CLOCK_MONOTONIC, &ts);
    mine = (double)(ts.tv_sec * 1000000000ll + ts.tv_nsec - strtoll(argv[2], NULL, 10)) / 1e6;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Reduce(&mine, &last, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("{\"bench\":\"boot\",\"peer\":\"%s\",\"ranks\":%d,\"total_ms\":%.3f}\n", argv[1], size, last);
        fflush(stdout);
    }
    MPI_Finalize();
    return 0;
}
