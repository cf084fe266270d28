# Finds libraries. Sets LK_LIBRARIES, to link, and LK_BUILD_INFO, for `lockstep doctor`.

# Required libraries.
find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
set(LK_LIBRARIES Threads::Threads ZLIB::ZLIB PkgConfig::XXHASH PkgConfig::JANSSON m ${CMAKE_DL_LIBS})
set(LK_BUILD_INFO "")

# Optional libraries.

# lk_find(LIBRARY module): finds a library by pkg-config unless LK_WITH_LIBRARY is off.
macro(lk_find library module)
  if(LK_WITH_${library})
    # CMake does not keep directories that follow -isystem, so a second configuration would change the flags of every file.
    unset(__pkg_config_checked_${library} CACHE)
    pkg_check_modules(${library} IMPORTED_TARGET ${module})
    if(${library}_FOUND)
      list(APPEND LK_LIBRARIES PkgConfig::${library})
    endif()
  endif()
endmacro()

lk_find(HWLOC hwloc)
lk_find(CURL libcurl)
lk_find(CAIRO cairo-png)
lk_find(PNG libpng>=1.6)
lk_find(JPEG libjpeg>=2.0) # libjpeg-turbo: other libraries lack jpeg_mem_src and decode to other bits.
lk_find(ZMQ libzmq>=4.3)
lk_find(MICROHTTPD libmicrohttpd>=0.9.71) # earlier ones have another type of result

# find_package(dnnl) does not work: Debian's configuration fails without OpenCL's headers, which a CPU does not need.
if(LK_WITH_ONEDNN)
  find_path(ONEDNN_INCLUDE_DIR oneapi/dnnl/dnnl.h)
  find_library(ONEDNN_LIBRARY dnnl)
  mark_as_advanced(ONEDNN_INCLUDE_DIR ONEDNN_LIBRARY)
  if(ONEDNN_INCLUDE_DIR AND ONEDNN_LIBRARY)
    set(ONEDNN_FOUND TRUE)
    add_library(DNNL::dnnl UNKNOWN IMPORTED)
    set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${ONEDNN_LIBRARY}
                          INTERFACE_INCLUDE_DIRECTORIES ${ONEDNN_INCLUDE_DIR})
    list(APPEND LK_LIBRARIES DNNL::dnnl)
    foreach(part MAJOR MINOR PATCH)
      file(STRINGS ${ONEDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h line REGEX "define DNNL_VERSION_${part} ")
      string(REGEX MATCH "[0-9]+" number "${line}")
      list(APPEND ONEDNN_VERSION ${number})
    endforeach()
    list(JOIN ONEDNN_VERSION "." ONEDNN_VERSION)
  endif()
endif()

foreach(library ONEDNN HWLOC CURL CAIRO PNG JPEG ZMQ MICROHTTPD)
  if(${library}_FOUND)
    message(STATUS "${library}: ${${library}_VERSION}")
    list(APPEND LK_BUILD_INFO LK_HAVE_${library} LK_${library}_VERSION="${${library}_VERSION}")
  else()
    message(STATUS "${library}: not used")
  endif()
endforeach()

# Version and revision of this build.
find_package(Git QUIET)
if(GIT_FOUND)
  execute_process(COMMAND ${GIT_EXECUTABLE} describe --always --dirty --tags WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
                  OUTPUT_VARIABLE LK_REVISION OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(LK_SANITIZE)
  set(sanitizers ", sanitizers: ${LK_SANITIZE}")
endif()
list(APPEND LK_BUILD_INFO LK_VERSION="${PROJECT_VERSION}" LK_REVISION="${LK_REVISION}"
     LK_BUILD_TYPE="${CMAKE_BUILD_TYPE}" LK_SANITIZERS="${sanitizers}")

# lk_define(library files...): defines LK_HAVE_LIBRARY for the files if the library was found.
function(lk_define library)
  if(${library}_FOUND AND ARGN)
    set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_DEFINITIONS LK_HAVE_${library})
  endif()
endfunction()

# lk_programs(folder library files...): makes a program folder/NAME of each file, linked with the library.
function(lk_programs folder library)
  foreach(source ${ARGN})
    get_filename_component(name ${source} NAME_WE)
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE ${library} m)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${folder})
  endforeach()
endfunction()
