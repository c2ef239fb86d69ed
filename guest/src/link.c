#include "link.h"

#include <stdlib.h>

#include "objects.h"

void gf_link_ended(struct gf_object *object) {
    free(((struct gf_link *)object)->image);
}
