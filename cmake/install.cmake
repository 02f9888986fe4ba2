# Install rules: library, headers, CMake package, pkg-config file, licences, the sources of
# the C# binding. Everything that is installed finds its neighbours relative to itself, so
# the tree may be moved.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# A DLL is a program to an installation.
set(OXPIPE_INSTALL_RUNTIMEDIR "${CMAKE_INSTALL_LIBDIR}")
if(WIN32)
  set(OXPIPE_INSTALL_RUNTIMEDIR "${CMAKE_INSTALL_BINDIR}")
endif()

if(OXPIPE_SHARED)
  install(FILES "${_oxpipe_shared}" DESTINATION "${OXPIPE_INSTALL_RUNTIMEDIR}"
    PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  foreach(_oxpipe_link IN LISTS _oxpipe_LINKS)
    install(FILES "${_oxpipe_lib_dir}/${_oxpipe_link}" DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  endforeach()
  if(_oxpipe_IMPORT_FILE)
    install(FILES "${_oxpipe_import}" DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  endif()
endif()
if(OXPIPE_STATIC)
  install(FILES "${_oxpipe_static}" DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endif()
install(FILES "${PROJECT_SOURCE_DIR}/include/oxpipe.h" "${PROJECT_SOURCE_DIR}/include/oxpipe.hpp"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE-MIT" "${PROJECT_SOURCE_DIR}/LICENSE-APACHE"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/licenses/oxpipe")
# Sources, since an assembly is built with its user's compiler or comes from NuGet.
install(DIRECTORY "${PROJECT_SOURCE_DIR}/bindings/csharp/Oxpipe/"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/oxpipe/csharp"
  FILES_MATCHING PATTERN "*.cs" PATTERN "obj" EXCLUDE PATTERN "bin" EXCLUDE)

set(_oxpipe_cmake_dir "${CMAKE_INSTALL_LIBDIR}/cmake/oxpipe")
configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/oxpipeConfig.cmake.in" "${PROJECT_BINARY_DIR}/oxpipeConfig.cmake"
  INSTALL_DESTINATION "${_oxpipe_cmake_dir}"
  PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR OXPIPE_INSTALL_RUNTIMEDIR
  NO_SET_AND_CHECK_MACRO)
# Before 1.0 a new minor version may leave out what was deprecated; see docs/abi.md.
set(_oxpipe_compatibility SameMajorVersion)
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(_oxpipe_compatibility SameMinorVersion)
endif()
write_basic_package_version_file("${PROJECT_BINARY_DIR}/oxpipeConfigVersion.cmake"
  COMPATIBILITY ${_oxpipe_compatibility})
install(FILES
  "${PROJECT_BINARY_DIR}/oxpipeConfig.cmake"
  "${PROJECT_BINARY_DIR}/oxpipeConfigVersion.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/oxpipeNames.cmake"
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
# What a static link needs besides; without a shared library every link is static.
set(_oxpipe_pc_private "-lgcc_s -lutil -lrt -lpthread -lm -ldl")
if(APPLE)
  set(_oxpipe_pc_private "-lSystem -lc -lm")
elseif(WIN32)
  set(_oxpipe_pc_private "-lkernel32 -lntdll -luserenv -lws2_32 -ldbghelp -lbcrypt -ladvapi32")
endif()
set(_oxpipe_pc_libs "")
if(NOT OXPIPE_SHARED)
  set(_oxpipe_pc_libs " ${_oxpipe_pc_private}")
  set(_oxpipe_pc_private "")
endif()
configure_file("${PROJECT_SOURCE_DIR}/cmake/oxpipe.pc.in" "${PROJECT_BINARY_DIR}/oxpipe.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/oxpipe.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
