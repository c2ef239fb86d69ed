#define _GNU_SOURCE /* strtod_l */
#include "asked.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool gf_asked_launch_blocking(void) {
    const char *text = getenv("CUDA_LAUNCH_BLOCKING");
    return text != NULL && strtol(text, NULL, 10) != 0;
}

CUmoduleLoadingMode gf_asked_loading(CUmoduleLoadingMode unasked) {
    const char *text = getenv("CUDA_MODULE_LOADING");
    return text == NULL                 ? unasked
           : strcmp(text, "EAGER") == 0 ? CU_MODULE_EAGER_LOADING
           : strcmp(text, "LAZY") == 0  ? CU_MODULE_LAZY_LOADING
                                        : unasked;
}

double gf_asked_number(const char *text, char **end) {
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    double value = plain != (locale_t)0 ? strtod_l(text, end, plain) : strtod(text, end);
    if (plain != (locale_t)0) {
        freelocale(plain);
    }
    return value;
}

bool gf_asked_size(const char *text, uint64_t *bytes) {
    static const char units[] = "kmgt";
    text += strspn(text, " \t\n");
    size_t digits = strspn(text, "0123456789."); /* so far there is no exponent, hexadecimal or sign */
    char *unit;
    double value = gf_asked_number(text, &unit);
    if (digits == 0 || unit != text + digits) {
        return false;
    }
    unit += strspn(unit, " \t\n");
    const char *known = *unit != '\0' ? strchr(units, *unit | 0x20) : NULL;
    for (const char *u = units; known != NULL && u <= known; u++) {
        value *= 1024;
    }
    unit += known != NULL;
    unit += strncasecmp(unit, "ib", 2) == 0 ? 2 : strncasecmp(unit, "b", 1) == 0;
    *bytes = value < 0x1p64 ? (uint64_t)value : UINT64_MAX;
    return unit[strspn(unit, " \t\n")] == '\0';
}
