# Defines oxpipe::oxpipe (shared) and oxpipe::oxpipe_static from OXPIPE_INCLUDE_DIR,
# OXPIPE_SHARED_LIBRARY, OXPIPE_STATIC_LIBRARY and OXPIPE_SONAME. Used by the source tree
# and by the installed package, so that both give the same targets.

if(NOT TARGET oxpipe::oxpipe)
  find_package(Threads REQUIRED)

  add_library(oxpipe::oxpipe SHARED IMPORTED GLOBAL)
  set_target_properties(oxpipe::oxpipe PROPERTIES
    IMPORTED_LOCATION "${OXPIPE_SHARED_LIBRARY}"
    IMPORTED_SONAME "${OXPIPE_SONAME}"
    INTERFACE_INCLUDE_DIRECTORIES "${OXPIPE_INCLUDE_DIR}")

  # What `cargo rustc --release --crate-type staticlib -- --print native-static-libs` lists.
  add_library(oxpipe::oxpipe_static STATIC IMPORTED GLOBAL)
  set_target_properties(oxpipe::oxpipe_static PROPERTIES
    IMPORTED_LOCATION "${OXPIPE_STATIC_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${OXPIPE_INCLUDE_DIR}"
    INTERFACE_LINK_LIBRARIES "gcc_s;util;rt;Threads::Threads;m;${CMAKE_DL_LIBS}")
endif()
