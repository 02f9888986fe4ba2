# oxpipe_names(<version> <prefix>) sets, for the system that is built for,
#   <prefix>_SHARED_FILE        the shared library's file, which holds the code
#   <prefix>_RUNTIME_FILE       the name under which programs ask for it
#   <prefix>_LINKS              links to it, each to the one before
#   <prefix>_IMPORT_FILE        what a program links on Windows; else empty
#   <prefix>_STATIC_FILE        the static library
#   <prefix>_CARGO_SHARED_FILE, <prefix>_CARGO_IMPORT_FILE   Cargo's names of the first two
# The static library has Cargo's own name everywhere.
function(oxpipe_names version prefix)
  string(REGEX REPLACE "\\..*$" "" major "${version}")
  set(import "")
  set(links "")
  if(WIN32)
    set(shared "oxpipe.dll")
    set(runtime "${shared}")
    set(cargo_shared "${shared}")
    if(MINGW)
      set(import "liboxpipe.dll.a")
      set(cargo_import "${import}")
      set(static "liboxpipe.a")
    else()
      # Beside the static oxpipe.lib.
      set(import "oxpipe.dll.lib")
      set(cargo_import "${import}")
      set(static "oxpipe.lib")
    endif()
  elseif(APPLE)
    set(cargo_shared "liboxpipe.dylib")
    set(shared "liboxpipe.${version}.dylib")
    set(runtime "liboxpipe.${major}.dylib")
    set(links "${runtime}" "liboxpipe.dylib")
    set(static "liboxpipe.a")
  else()
    set(cargo_shared "liboxpipe.so")
    set(shared "liboxpipe.so.${version}")
    set(runtime "liboxpipe.so.${major}")
    set(links "${runtime}" "liboxpipe.so")
    set(static "liboxpipe.a")
  endif()
  set(${prefix}_SHARED_FILE "${shared}" PARENT_SCOPE)
  set(${prefix}_RUNTIME_FILE "${runtime}" PARENT_SCOPE)
  set(${prefix}_LINKS "${links}" PARENT_SCOPE)
  set(${prefix}_IMPORT_FILE "${import}" PARENT_SCOPE)
  set(${prefix}_STATIC_FILE "${static}" PARENT_SCOPE)
  set(${prefix}_CARGO_SHARED_FILE "${cargo_shared}" PARENT_SCOPE)
  set(${prefix}_CARGO_IMPORT_FILE "${cargo_import}" PARENT_SCOPE)
endfunction()
