/* A program that another project builds against oxpipe. Valid C99 and C++. */
#include <oxpipe.h>

#include <stdio.h>

int main(void)
{
    char version[32];
    uint64_t needed = 0;
    if (oxp_version_copy(version, sizeof version, &needed, NULL) != OXP_OK) {
        fprintf(stderr, "oxp_version_copy failed; it needs %llu bytes\n", (unsigned long long)needed);
        return 1;
    }
    printf("oxpipe %s, ABI %u\n", version, (unsigned)oxp_abi_version());
    return oxp_abi_version() == OXP_ABI_VERSION ? 0 : 1;
}
