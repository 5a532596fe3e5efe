/*
 * timing.h - the clock of the benchmarks, and what they tell of repeated measurements. In a header, so that each
 * benchmark stays a program of one file.
 *
 *   values, sorted:  least ... 10 % ... median ... 90 % ... most
 */
#ifndef H2OKV_BENCH_TIMING_H
#define H2OKV_BENCH_TIMING_H

#include <stdlib.h>
#include <time.h>

static inline double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static inline double now_seconds(void)
{
    return now_us() * 1e-6;
}

static inline int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts. n > 0. */
static inline double median(double *values, size_t n)
{
    qsort(values, n, sizeof *values, by_value);
    return values[n / 2];
}

#endif
