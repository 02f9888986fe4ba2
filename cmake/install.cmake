# Install rules: library, headers, CMake package, pkg-config file, licences. Everything
# that is installed finds its neighbours relative to itself, so the tree may be moved.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(FILES "${_oxpipe_shared}" DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
install(FILES
  "${_oxpipe_lib_dir}/${_oxpipe_soname}"
  "${_oxpipe_lib_dir}/liboxpipe.so"
  "${_oxpipe_static}"
  DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(FILES "${PROJECT_SOURCE_DIR}/include/oxpipe.h" "${PROJECT_SOURCE_DIR}/include/oxpipe.hpp"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE-MIT" "${PROJECT_SOURCE_DIR}/LICENSE-APACHE"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/licenses/oxpipe")

set(_oxpipe_cmake_dir "${CMAKE_INSTALL_LIBDIR}/cmake/oxpipe")
configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/oxpipeConfig.cmake.in" "${PROJECT_BINARY_DIR}/oxpipeConfig.cmake"
  INSTALL_DESTINATION "${_oxpipe_cmake_dir}"
  PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR
  NO_SET_AND_CHECK_MACRO)
# Before 1.0 a new minor version may change the interface.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/oxpipeConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/oxpipeConfig.cmake"
  "${PROJECT_BINARY_DIR}/oxpipeConfigVersion.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/oxpipeTargets.cmake"
  DESTINATION "${_oxpipe_cmake_dir}")

# An absolute folder (as some distributions pass) stays absolute, a relative one hangs on
# ${prefix}.
foreach(_oxpipe_dir INCLUDEDIR LIBDIR)
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${_oxpipe_dir}}")
    set(_oxpipe_pc_${_oxpipe_dir} "${CMAKE_INSTALL_${_oxpipe_dir}}")
  else()
    set(_oxpipe_pc_${_oxpipe_dir} "\${prefix}/${CMAKE_INSTALL_${_oxpipe_dir}}")
  endif()
endforeach()
file(RELATIVE_PATH _oxpipe_pc_up "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
string(REGEX REPLACE "/$" "" _oxpipe_pc_up "${_oxpipe_pc_up}")
configure_file("${PROJECT_SOURCE_DIR}/cmake/oxpipe.pc.in" "${PROJECT_BINARY_DIR}/oxpipe.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/oxpipe.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
