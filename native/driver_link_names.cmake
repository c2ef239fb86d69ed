# Writes OUTPUT, a header with NAME(x) for each function that DRIVER exports.
execute_process(COMMAND ${NM} -D --defined-only ${DRIVER} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL " T [A-Za-z0-9_]+" functions "${symbols}")
list(TRANSFORM functions REPLACE " T (.*)" "NAME(\\1)\n")
string(CONCAT text ${functions})
file(WRITE ${OUTPUT} "${text}")
