# gf_driver_link(TARGET DRIVER): libcuda.so beside a libcuda.so.1, for who loads the driver by that name. NVIDIA has a
# symbolic link there, which a wheel cannot hold, and a copy would be a second driver in one process: so it is a library
# of its own that has nothing but a need for the other.
function(gf_driver_link target driver)
  add_library(${target} SHARED ${GF_ROOT}/native/driver_link.c)
  add_dependencies(${target} ${driver})
  target_link_options(${target} PRIVATE -nostdlib -Wl,-soname,libcuda.so -Wl,--no-as-needed
    $<TARGET_FILE:${driver}>)
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME cuda SUFFIX .so NO_SONAME ON BUILD_RPATH "" INSTALL_RPATH "$ORIGIN" BUILD_WITH_INSTALL_RPATH ON
    LIBRARY_OUTPUT_DIRECTORY $<TARGET_FILE_DIR:${driver}>)
endfunction()
