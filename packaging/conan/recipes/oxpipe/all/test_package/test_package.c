#include <oxpipe.h>
#include <stdio.h>

int main(void)
{
    char version[32];
    uint64_t needed = 0;
    if (oxp_version_copy(version, sizeof version, &needed, NULL) != OXP_OK)
        return 1;
    printf("oxpipe %s\n", version);
    return 0;
}
