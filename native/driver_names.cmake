# gf_driver_link(TARGET DRIVER NAME): libNAME.so beside a libNAME.so.1, for who links with it or loads it by that name.
# NVIDIA has a symbolic link there, which a wheel cannot hold, and a copy would be a second driver in one process. So it
# is a filter: a linker finds the driver's names in it and notes down libNAME.so.1, and the loader takes what has these
# names from the driver. The driver's path is what tells the two apart, for they have one name.
function(gf_driver_link target driver name)
  set(names ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${target}.names)
  add_custom_command(OUTPUT ${names}/driver_link_names.h
    COMMAND ${CMAKE_COMMAND} -E make_directory ${names}
    COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM} -DDRIVER=$<TARGET_FILE:${driver}> -DOUTPUT=${names}/driver_link_names.h
      -P ${GF_ROOT}/native/driver_link_names.cmake
    DEPENDS ${driver} ${GF_ROOT}/native/driver_link_names.cmake VERBATIM)
  add_library(${target} SHARED ${GF_ROOT}/native/driver_link.c ${names}/driver_link_names.h)
  target_include_directories(${target} PRIVATE ${names})
  target_link_options(${target} PRIVATE -nostdlib -Wl,-soname,lib${name}.so.1 -Wl,--filter=$ORIGIN/lib${name}.so.1)
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME ${name} SUFFIX .so NO_SONAME ON LIBRARY_OUTPUT_DIRECTORY $<TARGET_FILE_DIR:${driver}>)
endfunction()

# gf_driver_front(TARGET FOLDER SOURCE...): libgpuferry.so in the folder of a libcuda.so.1, which is what is preloaded.
function(gf_driver_front target folder)
  add_library(${target} SHARED ${GF_ROOT}/native/driver_front.c ${ARGN})
  target_link_libraries(${target} PRIVATE gf_flags gf_old_glibc)
  target_link_options(${target} PRIVATE -Wl,-z,nodelete -Wl,-z,defs -Wl,-soname,libgpuferry.so
    -Wl,--disable-new-dtags)
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME gpuferry SUFFIX .so NO_SONAME ON LIBRARY_OUTPUT_DIRECTORY ${folder} C_VISIBILITY_PRESET hidden
    BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN"
    GF_BEFORE_LIBC ON)
endfunction()
