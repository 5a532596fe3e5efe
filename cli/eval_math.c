/*
 * eval_math.c - the arithmetic of `h2okv eval`: from logits to perplexity and KL divergence. Sums are double, in the
 * order of the vocabulary.
 */
#include "eval.h"

#include <math.h>
#include <stdlib.h>

uint32_t eval_most_likely(const float *logits, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++) best = logits[i] > logits[best] ? i : best;
    return best;
}

double eval_softmax(const float *logits, uint32_t n, float *p)
{
    double most = (double)logits[eval_most_likely(logits, n)], sum = 0; /* so that exp cannot overflow */
    for (uint32_t i = 0; i < n; i++) sum += exp((double)logits[i] - most);
    sum = most + log(sum);
    for (uint32_t i = 0; p && i < n; i++) p[i] = (float)exp((double)logits[i] - sum);
    return sum;
}

/* sum p (log p - log q) = sum p (p_logit - q_logit) + q_sum - p_sum */
double eval_kl(const float *p_logits, const float *p, double p_sum, const float *q_logits, double q_sum, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (p[i] > 0) sum += (double)p[i] * ((double)p_logits[i] - (double)q_logits[i]); /* 0 log 0 is 0 */
    }
    return fmax(0, sum + q_sum - p_sum); /* rounding can leave a KL of 0 below it */
}

double eval_perplexity(double sum_of_nll, uint32_t n)
{
    return exp(sum_of_nll / n);
}

double eval_mean(const double *values, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += values[i];
    return sum / n;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double eval_percentile(double *values, uint32_t n, double percent)
{
    uint32_t rank = (uint32_t)ceil(n * percent / 100);
    qsort(values, n, sizeof *values, by_value);
    return values[rank > 0 ? rank - 1 : 0];
}
