#include "engine.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sim_log(const char *format, ...) {
    const char *setting = getenv("GPUFERRY_SIM_LOG");
    if (setting != NULL && strcmp(setting, "0") == 0)
        return;
    char line[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    fprintf(stderr, "gpuferry simulated device: %s\n", line);
}
