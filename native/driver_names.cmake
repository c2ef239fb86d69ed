# gf_driver_link(TARGET DRIVER NAME): libNAME.so beside a libNAME.so.1, for who loads it by that name. NVIDIA has a
# symbolic link there, which a wheel cannot hold, and a copy would be a second driver in one process: so it is a library
# of its own that has nothing but a need for the other.
function(gf_driver_link target driver name)
  add_library(${target} SHARED ${GF_ROOT}/native/driver_link.c)
  add_dependencies(${target} ${driver})
  target_link_options(${target} PRIVATE -nostdlib -Wl,-soname,lib${name}.so -Wl,--no-as-needed
    $<TARGET_FILE:${driver}>)
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME ${name} SUFFIX .so NO_SONAME ON BUILD_RPATH "" INSTALL_RPATH "$ORIGIN" BUILD_WITH_INSTALL_RPATH ON
    LIBRARY_OUTPUT_DIRECTORY $<TARGET_FILE_DIR:${driver}>)
endfunction()

# gf_driver_front(TARGET FOLDER SOURCE...): libgpuferry.so in the folder of a libcuda.so.1, which is what is preloaded.
function(gf_driver_front target folder)
  add_library(${target} SHARED ${GF_ROOT}/native/driver_front.c ${ARGN})
  target_link_libraries(${target} PRIVATE gf_flags gf_old_glibc)
  target_link_options(${target} PRIVATE -Wl,-z,nodelete -Wl,-z,defs -Wl,-soname,libgpuferry.so)
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME gpuferry SUFFIX .so NO_SONAME ON LIBRARY_OUTPUT_DIRECTORY ${folder} C_VISIBILITY_PRESET hidden
    GF_BEFORE_LIBC ON)
endfunction()
