#include "portion.h"

#include <stdlib.h>
#include <string.h>

#include "gpuferry/frames.h"
#include "log.h"
#include "operations.h"

/* "0.3", ".25", "1": in thousandths, rounded up; -1 if it is no part of a GPU. */
static int parse_share(const char *text) {
    int digits = 0, whole = 0, thousandths = 0, places = 0;
    bool rest = false, point = false;
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '.' && !point) {
            point = true;
            continue;
        }
        if (*c < '0' || *c > '9') {
            return -1;
        }
        digits++;
        int digit = *c - '0';
        if (!point) {
            whole = whole > 1 ? whole : 10 * whole + digit;
        } else if (places < 3) {
            thousandths = 10 * thousandths + digit;
            places++;
        } else {
            rest = rest || digit != 0;
        }
    }
    for (; places < 3; places++) {
        thousandths *= 10;
    }
    int value = 1000 * whole + thousandths + rest;
    return digits > 0 && value <= 1000 ? value : -1;
}

static bool read_share(const char *name, uint16_t *field) {
    const char *text = getenv(name);
    if (text == NULL || *text == '\0') {
        return true;
    }
    int value = parse_share(text);
    if (value < 0) {
        gf_error("%s=%s is no part of a GPU: write a number from 0 to 1, as 0.3", name, text);
        return false;
    }
    *field = (uint16_t)value;
    return true;
}

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static bool read_label(const char *name, char field[GF_COMPANY_LABEL_SIZE]) {
    const char *text = getenv(name);
    size_t size = text == NULL ? 0 : strlen(text);
    if (size == 0) {
        return true;
    }
    bool right = size < GF_COMPANY_LABEL_SIZE && is_letter(text[0]) && is_letter(text[size - 1]);
    for (size_t i = 0; right && i < size; i++) {
        right = is_letter(text[i]) || strchr("._-", text[i]) != NULL;
    }
    if (!right) {
        gf_error("%s=%s is no label: write at most %d letters, digits, '.', '_' and '-', the first and the "
                 "last a letter or digit",
                 name, text, GF_COMPANY_LABEL_SIZE - 1);
        return false;
    }
    memcpy(field, text, size);
    return true;
}

static bool is_said(const struct gf_portion *portion) {
    return portion->request != 0 || portion->limit != 0 || portion->affinity[0] != '\0' ||
           portion->anti_affinity[0] != '\0' || portion->exclusion[0] != '\0';
}

bool gf_portion_add(struct gf_extensions *extensions) {
    struct gf_portion portion = {0};
    const char *limit = getenv("GPUFERRY_GPU_LIMIT");
    if (!read_share("GPUFERRY_GPU_REQUEST", &portion.request) ||
        !read_share("GPUFERRY_GPU_LIMIT", &portion.limit) ||
        !read_label("GPUFERRY_AFFINITY", portion.affinity) ||
        !read_label("GPUFERRY_ANTI_AFFINITY", portion.anti_affinity) ||
        !read_label("GPUFERRY_EXCLUSIVE", portion.exclusion)) {
        return false;
    }
    if (limit != NULL && *limit != '\0' && (portion.limit == 0 || portion.request > portion.limit)) {
        gf_error(
            "GPUFERRY_GPU_LIMIT=%s is less than %s: a program may not have less of a GPU than it is promised",
            limit, portion.limit == 0 ? "anything" : "GPUFERRY_GPU_REQUEST");
        return false;
    }
    if (!is_said(&portion)) {
        return true;
    }
    if (!gf_operations_extended()) {
        gf_error(
            "the GPU server is of release 0.1, which promises no part of a GPU and knows no affinity: update "
            "it, or unset GPUFERRY_GPU_REQUEST, GPUFERRY_GPU_LIMIT, GPUFERRY_AFFINITY, "
            "GPUFERRY_ANTI_AFFINITY and GPUFERRY_EXCLUSIVE");
        return false;
    }
    return gf_extension_add(extensions, GF_EXTENSION_PORTION, &portion, sizeof portion);
}
