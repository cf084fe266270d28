# The shared library with its headers, found by pkg-config and by find_package(lockstep), and the command.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS lockstep_shared EXPORT lockstep-targets)
install(DIRECTORY include/lockstep TYPE INCLUDE)
if(TARGET lockstep)
  install(TARGETS lockstep)
endif()

set(LK_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
file(WRITE ${PROJECT_BINARY_DIR}/lockstep-config.cmake
     "include(\${CMAKE_CURRENT_LIST_DIR}/lockstep-targets.cmake)\n")
write_basic_package_version_file(lockstep-config-version.cmake COMPATIBILITY SameMinorVersion)
install(EXPORT lockstep-targets NAMESPACE lockstep:: DESTINATION ${LK_PACKAGE_DIR})
install(FILES ${PROJECT_BINARY_DIR}/lockstep-config.cmake ${PROJECT_BINARY_DIR}/lockstep-config-version.cmake
        DESTINATION ${LK_PACKAGE_DIR})

# Relative to where the file itself lies, so that a prefix given only at installation holds too.
file(RELATIVE_PATH LK_PREFIX_FROM_PC /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/lockstep.pc.in lockstep.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/lockstep.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
