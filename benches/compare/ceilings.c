/* What this machine can do at most, for the fractions in the table:

       ceilings THREADS  ->  {"read_gb_s": ..., "f32_gflop_s": ...}

   Read: the sum of a buffer far larger than any cache. Rate: independent fused
   multiply-adds in registers. Best of several rounds each. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 7, BYTES = 512 << 20, LANES = 12, WIDTH = 8, STEPS = 1 << 24 };
typedef float vector __attribute__((vector_size(WIDTH * sizeof(float))));

static pthread_barrier_t barrier;
static int threads;
static const uint64_t *buffer;
static volatile uint64_t sink;
static volatile float float_sink;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void read_part(int part) {
    typedef uint64_t words __attribute__((vector_size(64)));
    size_t count = BYTES / sizeof(words) / threads;
    const words *from = (const words *)buffer + part * count;
    words sums[4] = {{0}};
    for (size_t i = 0; i + 4 <= count; i += 4)
        for (int k = 0; k < 4; k++) sums[k] += from[i + k];
    words sum = sums[0] + sums[1] + sums[2] + sums[3];
    for (int k = 0; k < 8; k++) sink += sum[k];
}

static void multiply_part(int part) {
    vector sums[LANES], a, b;
    for (int k = 0; k < WIDTH; k++) a[k] = 0.999f, b[k] = 1e-6f * k;
    for (int k = 0; k < LANES; k++) sums[k] = b + (float)k;
    for (int i = 0; i < STEPS; i++)
        for (int k = 0; k < LANES; k++) sums[k] = sums[k] * a + b;
    for (int k = 1; k < LANES; k++) sums[0] += sums[k];
    for (int k = 0; k < WIDTH; k++) float_sink += sums[0][k];
}

static double best[2] = {1e30, 1e30};

static void *work(void *argument) {
    int part = (int)(intptr_t)argument;
    for (int round = 0; round < ROUNDS; round++)
        for (int kind = 0; kind < 2; kind++) {
            pthread_barrier_wait(&barrier);
            double start = now();
            kind == 0 ? read_part(part) : multiply_part(part);
            pthread_barrier_wait(&barrier);
            if (part == 0 && now() - start < best[kind]) best[kind] = now() - start;
        }
    return NULL;
}

int main(int argc, char **argv) {
    threads = argc > 1 ? atoi(argv[1]) : 1;
    uint64_t *memory = aligned_alloc(4096, BYTES);
    if (!memory || threads < 1) return 1;
    for (size_t i = 0; i < BYTES / sizeof *memory; i++) memory[i] = i;
    buffer = memory;
    pthread_barrier_init(&barrier, NULL, threads);
    pthread_t ids[threads];
    for (intptr_t i = 1; i < threads; i++) pthread_create(&ids[i], NULL, work, (void *)i);
    work((void *)0);
    for (int i = 1; i < threads; i++) pthread_join(ids[i], NULL);
    double operations = 2.0 * WIDTH * LANES * STEPS * threads;
    printf("{\"read_gb_s\": %.2f, \"f32_gflop_s\": %.1f}\n", BYTES / best[0] * 1e-9, operations / best[1] * 1e-9);
    return 0;
}
