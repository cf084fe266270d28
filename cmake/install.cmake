# Installs the shared library with its headers, for pkg-config and find_package(lockstep), and the command with its manual pages and
# completion. Plug-ins have a folder of their own (cmake/cuda.cmake, mpi.cmake). Components become packages: see
# cmake/package.cmake.
include(CMakePackageConfigHelpers)

# --- the library -----------------------------------------------------------------------------------------------------

install(TARGETS lockstep_shared EXPORT lockstep-targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development)
install(DIRECTORY include/lockstep DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)

set(LK_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
file(WRITE ${PROJECT_BINARY_DIR}/lockstep-config.cmake
     "include(\${CMAKE_CURRENT_LIST_DIR}/lockstep-targets.cmake)\n")
write_basic_package_version_file(lockstep-config-version.cmake COMPATIBILITY SameMinorVersion)
install(EXPORT lockstep-targets NAMESPACE lockstep:: DESTINATION ${LK_PACKAGE_DIR} COMPONENT development)
install(FILES ${PROJECT_BINARY_DIR}/lockstep-config.cmake ${PROJECT_BINARY_DIR}/lockstep-config-version.cmake
        DESTINATION ${LK_PACKAGE_DIR} COMPONENT development)

# Paths are relative to the installed file, so that a prefix given at installation works too.
file(RELATIVE_PATH LK_PREFIX_FROM_PC /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/lockstep.pc.in lockstep.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/lockstep.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

# --- the command -----------------------------------------------------------------------------------------------------

install(TARGETS lockstep RUNTIME COMPONENT command)

# The command writes its manual pages and completion from its option tables. That needs a command which runs here: not a
# cross-compiled one, nor one under ThreadSanitizer, which may need help to start.
if(NOT CMAKE_CROSSCOMPILING AND NOT LK_SANITIZE)
  set(folder ${PROJECT_BINARY_DIR}/manual)
  file(MAKE_DIRECTORY ${folder})
  find_program(GZIP gzip)
  if(GZIP)
    set(compress COMMAND sh -c "${GZIP} -9n ${folder}/man1/*.1")
  endif()
  add_custom_command(OUTPUT manual.stamp
                     COMMAND ${CMAKE_COMMAND} -E rm -rf ${folder}/man1
                     COMMAND ${CMAKE_COMMAND} -E make_directory ${folder}/man1
                     COMMAND lockstep manual ${folder}/man1
                     ${compress}
                     COMMAND lockstep completion bash > ${folder}/lockstep
                     COMMAND lockstep completion zsh > ${folder}/_lockstep
                     COMMAND lockstep completion fish > ${folder}/lockstep.fish
                     COMMAND ${CMAKE_COMMAND} -E touch manual.stamp
                     DEPENDS lockstep COMMENT "Writing manual pages and completion" VERBATIM)
  add_custom_target(manual ALL DEPENDS manual.stamp)
  install(DIRECTORY ${folder}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT command)
  install(FILES ${folder}/lockstep DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT command)
  # zsh reads site-functions; Debian's packages use vendor-completions.
  install(FILES ${folder}/_lockstep DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT unpackaged)
  install(FILES ${folder}/_lockstep DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions COMPONENT command
          EXCLUDE_FROM_ALL)
  install(FILES ${folder}/lockstep.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d
          COMPONENT command)
endif()

# Documents and examples, to which help and manual pages refer, and the files to which documents have links.
set(folder ${CMAKE_INSTALL_DATADIR}/doc/lockstep)
install(FILES README.md ARCHITECTURE.md CONTRIBUTING.md CHANGELOG.md SECURITY.md DESTINATION ${folder} COMPONENT command)
install(DIRECTORY docs examples include DESTINATION ${folder} COMPONENT command)
install(FILES LICENSE DESTINATION ${folder} COMPONENT unpackaged) # Debian's packages have a copyright file
