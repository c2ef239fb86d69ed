/* What is preloaded: it loads the driver that lies beside it, by the names by which programs ask for one, and
 * keeps its functions out of the global scope. A library may have variables of the same names as theirs, into
 * which it puts what dlsym finds; were the driver preloaded itself, those would be bound to its code. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static void open_beside(const char *own, const char *name) {
    char path[4096];
    int folder = (int)(strrchr(own, '/') - own);
    if (snprintf(path, sizeof path, "%.*s/%s", folder, own, name) < (int)sizeof path) {
        dlopen(path, RTLD_LAZY | RTLD_LOCAL); /* what is not there is not asked for here */
    }
}

/* The program's own search path may lead to another driver, which the loader took before this one could. */
static void say_if_another(const char *own) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    struct link_map *map = NULL;
    if (driver == NULL) {
        return;
    }
    size_t folder = (size_t)(strrchr(own, '/') - own) + 1;
    if (dlinfo(driver, RTLD_DI_LINKMAP, &map) == 0 && strncmp(map->l_name, own, folder) != 0) {
        fprintf(stderr,
                "gpuferry: this program has loaded another driver, %s, to which its own search path leads; "
                "to have it use gpuferry's, start it with LD_PRELOAD=%.*slibcuda.so.1\n",
                map->l_name, (int)folder, own);
    }
    dlclose(driver);
}

/* Whether a program has loaded this apart from its own libraries (dlmopen). */
static bool is_apart(struct link_map *own) {
    Lmid_t names;
    return dlinfo(own, RTLD_DI_LMID, &names) == 0 && names != LM_ID_BASE;
}

__attribute__((constructor)) static void load(void) {
    Dl_info own;
    struct link_map *map = NULL;
    if (dladdr1((void *)load, &own, (void **)&map, RTLD_DL_LINKMAP) != 0 && own.dli_fname[0] == '/') {
        open_beside(own.dli_fname, "libcuda.so.1");
        if (!is_apart(map)) { /* glibc's loader comes to no end with filters there */
            dlopen("libcuda.so", RTLD_LAZY | RTLD_LOCAL); /* by DT_RPATH, for only then is this its name */
        }
        open_beside(own.dli_fname, "libnvidia-ml.so.1");
        say_if_another(own.dli_fname);
        dlerror(); /* what was not there is no error of the program's */
    }
}
