# Packages for Debian and Ubuntu, made by `cpack` in the build folder: the command, the library, the headers, and the MPI plug-in,
# which alone depends on Open MPI. The CUDA plug-in is in none, because its libraries are mostly not packages of the system.
# `cmake --install` installs everything.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME lockstep)
set(CPACK_PACKAGE_VENDOR "Lockstep")
# The packages' maintainer: -DCPACK_PACKAGE_CONTACT="NAME <ADDRESS>", or the last commit's author.
if(GIT_FOUND AND NOT CPACK_PACKAGE_CONTACT)
  execute_process(COMMAND ${GIT_EXECUTABLE} log -1 "--format=%an <%ae>" WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
                  OUTPUT_VARIABLE CPACK_PACKAGE_CONTACT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT CPACK_PACKAGE_CONTACT)
  set(CPACK_PACKAGE_CONTACT "Lockstep <lockstep@localhost>")
endif()
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)

set(CPACK_COMPONENTS_ALL command library development)
if(TARGET lockstep_mpi)
  list(APPEND CPACK_COMPONENTS_ALL mpi)
endif()
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
file(WRITE ${PROJECT_BINARY_DIR}/package-files/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${PROJECT_BINARY_DIR}/package-files/triggers)

set(LK_PACKAGE_command lockstep)
set(LK_PACKAGE_library liblockstep0)
set(LK_PACKAGE_development liblockstep-dev)
set(LK_PACKAGE_mpi lockstep-mpi)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "multi-device training of image classifiers")
set(CPACK_DEBIAN_COMMAND_DESCRIPTION "The command: trains networks on several devices, to the same bits on any number
of them, evaluates them, and uses them.")
set(CPACK_DEBIAN_LIBRARY_DESCRIPTION "The library: what programs that are made with it need to run.")
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "Headers, and what else is needed to make programs with the library.")
set(CPACK_DEBIAN_MPI_DESCRIPTION "The plug-in for MPI: lets the command, and programs made with the library,
train in several processes, on one machine or on many.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "liblockstep0 (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "lockstep (= ${PROJECT_VERSION}) | liblockstep0 (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_MPI_PACKAGE_RECOMMENDS "openmpi-bin")

# Debian's policy wants a copyright file and a changelog in every package.
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC) # of $SOURCE_DATE_EPOCH where that is set
foreach(component ${CPACK_COMPONENTS_ALL})
  string(TOUPPER ${component} upper)
  set(package ${LK_PACKAGE_${component}})
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${package})
  set(folder ${PROJECT_BINARY_DIR}/package-files/${package})
  file(WRITE ${folder}/copyright
       "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n"
       "Upstream-Name: lockstep\n\n"
       "Files: *\nCopyright: 2026 the authors of Lockstep\nLicense: Apache-2.0\n"
       " On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.\n")
  install(FILES ${folder}/copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} COMPONENT ${component}
          EXCLUDE_FROM_ALL)
  if(GZIP)
    file(WRITE ${folder}/changelog
         "lockstep (${PROJECT_VERSION}) unstable; urgency=medium\n\n  * Revision ${LK_REVISION}.\n\n"
         " -- ${CPACK_PACKAGE_CONTACT}  ${date}\n")
    execute_process(COMMAND ${GZIP} -9nf ${folder}/changelog)
    install(FILES ${folder}/changelog.gz DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} COMPONENT ${component}
            EXCLUDE_FROM_ALL)
  endif()
endforeach()

include(CPack)
