# Functions that define oxpipe::oxpipe (shared) and oxpipe::oxpipe_static from
# OXPIPE_INCLUDE_DIR, OXPIPE_LIBRARY_DIR and OXPIPE_RUNTIME_DIR (where a DLL is), and
# oxpipe_copy_runtime for the projects that use them. Used by the source tree and by the
# installed package, so that both give the same.

include("${CMAKE_CURRENT_LIST_DIR}/oxpipeNames.cmake")

# oxpipe_add_shared(<version>)
function(oxpipe_add_shared version)
  if(TARGET oxpipe::oxpipe)
    return()
  endif()
  oxpipe_names("${version}" name)
  add_library(oxpipe::oxpipe SHARED IMPORTED GLOBAL)
  set_target_properties(oxpipe::oxpipe PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${OXPIPE_INCLUDE_DIR}")
  if(WIN32)
    set_target_properties(oxpipe::oxpipe PROPERTIES
      IMPORTED_LOCATION "${OXPIPE_RUNTIME_DIR}/${name_SHARED_FILE}"
      IMPORTED_IMPLIB "${OXPIPE_LIBRARY_DIR}/${name_IMPORT_FILE}")
  else()
    if(APPLE)
      set(soname "@rpath/${name_RUNTIME_FILE}")
    else()
      set(soname "${name_RUNTIME_FILE}")
    endif()
    set_target_properties(oxpipe::oxpipe PROPERTIES
      IMPORTED_LOCATION "${OXPIPE_LIBRARY_DIR}/${name_SHARED_FILE}"
      IMPORTED_SONAME "${soname}")
  endif()
endfunction()

# oxpipe_add_static(<version>); needs Threads::Threads
function(oxpipe_add_static version)
  if(TARGET oxpipe::oxpipe_static)
    return()
  endif()
  oxpipe_names("${version}" name)
  # What `cargo rustc --release --crate-type staticlib -- --print native-static-libs` lists.
  if(WIN32)
    set(system kernel32 ntdll userenv ws2_32 dbghelp bcrypt advapi32)
  elseif(APPLE)
    set(system System c m)
  else()
    set(system gcc_s util rt Threads::Threads m ${CMAKE_DL_LIBS})
  endif()
  add_library(oxpipe::oxpipe_static STATIC IMPORTED GLOBAL)
  set_target_properties(oxpipe::oxpipe_static PROPERTIES
    IMPORTED_LOCATION "${OXPIPE_LIBRARY_DIR}/${name_STATIC_FILE}"
    INTERFACE_INCLUDE_DIRECTORIES "${OXPIPE_INCLUDE_DIR}"
    INTERFACE_LINK_LIBRARIES "${system}")
endfunction()

# oxpipe_copy_runtime(<target> [ONNXRUNTIME <file or folder>])
#
# Puts what the program <target> loads beside it, whenever it is built: liboxpipe, and with
# ONNXRUNTIME that library too, where oxpipe looks for it first. Elsewhere than on Windows
# the program is told to look beside itself, in the build tree and when it is installed.
function(oxpipe_copy_runtime target)
  cmake_parse_arguments(PARSE_ARGV 1 given "" "ONNXRUNTIME" "")
  if(given_UNPARSED_ARGUMENTS OR given_KEYWORDS_MISSING_VALUES)
    message(FATAL_ERROR "oxpipe_copy_runtime(<target> [ONNXRUNTIME <file or folder>]), not ${ARGV}")
  endif()
  if(NOT TARGET ${target})
    message(FATAL_ERROR "oxpipe_copy_runtime: there is no target ${target}")
  endif()
  if(TARGET oxpipe::oxpipe)
    # A program that links the static library has no use for it, and no harm from it.
    if(WIN32)
      set(runtime oxpipe.dll)
    else()
      get_target_property(runtime oxpipe::oxpipe IMPORTED_SONAME)
      string(REGEX REPLACE "^@rpath/" "" runtime "${runtime}")
    endif()
    add_custom_command(TARGET ${target} POST_BUILD
      COMMAND "${CMAKE_COMMAND}" -E copy_if_different
        "$<TARGET_FILE:oxpipe::oxpipe>" "$<TARGET_FILE_DIR:${target}>/${runtime}"
      VERBATIM)
  endif()
  if(given_ONNXRUNTIME)
    if(WIN32)
      set(name onnxruntime.dll)
    elseif(APPLE)
      set(name libonnxruntime.dylib)
    else()
      set(name libonnxruntime.so)
    endif()
    get_filename_component(library "${given_ONNXRUNTIME}" ABSOLUTE)
    if(IS_DIRECTORY "${library}")
      set(library "${library}/${name}")
    endif()
    if(NOT EXISTS "${library}")
      message(FATAL_ERROR "oxpipe_copy_runtime: ONNXRUNTIME ${given_ONNXRUNTIME}: there is no ${library}")
    endif()
    add_custom_command(TARGET ${target} POST_BUILD
      COMMAND "${CMAKE_COMMAND}" -E copy_if_different
        "${library}" "$<TARGET_FILE_DIR:${target}>/${name}"
      VERBATIM)
  endif()
  if(APPLE)
    set(beside "@loader_path")
  elseif(NOT WIN32)
    set(beside "$ORIGIN")
  endif()
  if(beside)
    set_property(TARGET ${target} APPEND PROPERTY BUILD_RPATH "${beside}")
    set_property(TARGET ${target} APPEND PROPERTY INSTALL_RPATH "${beside}")
  endif()
endfunction()
