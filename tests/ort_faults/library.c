/* An ONNX Runtime whose calls can fail: the functions of another one's table, some of them behind a
 * function that counts calls and answers one of them with an error instead of making it.
 *
 * REAL is the path of the other library. TABLE is the number of functions of its table. FAILING lists
 * the places in it of functions that return a status; MAKING those of them whose object is made at
 * their last argument, as pairs with the number of that argument; RELEASING those that release one. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef void *(*any)(void *, void *, void *, void *, void *, void *, void *, void *, void *, void *);

struct base {
    const void *(*get_api)(uint32_t version);
    const char *(*get_version)(void);
};

/* Calls of failing functions so far, the one that fails, and objects that live. */
long faults_calls;
long faults_fail_at = -1;
long faults_live;

static any real[TABLE];
static any table[TABLE];
static const struct base *real_base;

#define CREATE_STATUS 0

static void *refuse(void)
{
    return ((void *(*)(int, const char *))real[CREATE_STATUS])(1, "a fault that a test asked for");
}

static const int making[][2] = {MAKING};

#define RUN_OUTPUT_COUNT 6
#define RUN_OUTPUTS 7

static void *call(int place, void **a)
{
    void *before[64];
    void *status;
    size_t at, count = 0;
    if (faults_calls++ == faults_fail_at)
        return refuse();
    if (place == RUN) {
        count = (size_t)a[RUN_OUTPUT_COUNT];
        if (count > 64)
            count = 64;
        memcpy(before, a[RUN_OUTPUTS], count * sizeof *before);
    }
    status = real[place](a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9]);
    for (at = 0; at < count; at++)
        faults_live += before[at] == NULL && ((void **)a[RUN_OUTPUTS])[at] != NULL;
    for (at = 0; status == NULL && at < sizeof making / sizeof *making; at++)
        faults_live += making[at][0] == place;
    return status;
}

/* A function takes at most ten arguments, all of them words: what there are more of is not looked at. */
#define FUNCTION(place)                                                                                     \
    static void *failing_##place(void *a, void *b, void *c, void *d, void *e, void *f, void *g, void *h,     \
                                 void *i, void *j)                                                          \
    {                                                                                                       \
        void *all[10] = {a, b, c, d, e, f, g, h, i, j};                                                     \
        return call(place, all);                                                                            \
    }
#define RELEASE(place)                                                                                      \
    static void *releasing_##place(void *a, void *b, void *c, void *d, void *e, void *f, void *g, void *h,   \
                                   void *i, void *j)                                                        \
    {                                                                                                       \
        faults_live -= a != NULL;                                                                           \
        return real[place](a, b, c, d, e, f, g, h, i, j);                                                   \
    }
FUNCTIONS
RELEASES

static const void *get_api(uint32_t version)
{
    const void *found = real_base->get_api(version);
    if (found == NULL)
        return NULL;
    memcpy(real, found, sizeof real);
    memcpy(table, found, sizeof table);
#define FAILING(place) table[place] = failing_##place;
#define RELEASING(place) table[place] = releasing_##place;
    REPLACED
    return table;
}

static const char *get_version(void)
{
    return real_base->get_version();
}

const struct base *OrtGetApiBase(void)
{
    static const struct base own = {get_api, get_version};
    void *library = dlopen(REAL, RTLD_NOW | RTLD_LOCAL);
    const struct base *(*entry)(void);
    if (library == NULL)
        return NULL;
    *(void **)&entry = dlsym(library, "OrtGetApiBase");
    real_base = entry();
    return &own;
}
