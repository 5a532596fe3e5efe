# Install rules: libraries, headers, the program, man pages, pkg-config files and the CMake package.
#
# A llama.cpp out of the cache folder is installed with h2okv, into lib/h2okv and include/h2okv/llama.cpp, so that
# an emptied cache folder breaks nothing. One that is installed already (LLAMA_DIR, system) is used where it is.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/h2okv)
set(private_libdir ${CMAKE_INSTALL_LIBDIR}/h2okv)
# The pkg-config files and the CMake package name places relative to themselves, so the tree may be moved.
file(RELATIVE_PATH pc_to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
set(llama_package_libraries "")
set(llama_package_includes "")

if(TARGET h2okv_llama_shared)
  if(LlamaCpp_ORIGIN MATCHES "^(prebuilt|source)$")
    list(GET LlamaCpp_LIBRARIES 0 first)
    get_filename_component(dir "${first}" DIRECTORY)
    file(GLOB files "${dir}/*.so*" "${dir}/*.dylib")
    install(PROGRAMS ${files} DESTINATION ${private_libdir})
    install(DIRECTORY ${LlamaCpp_INCLUDE_DIRS}/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/h2okv/llama.cpp)
    foreach(library IN LISTS LlamaCpp_LIBRARIES)
      get_filename_component(name "${library}" NAME)
      list(APPEND llama_package_libraries "\${PACKAGE_PREFIX_DIR}/${private_libdir}/${name}")
    endforeach()
    set(llama_package_includes "\${PACKAGE_PREFIX_DIR}/${CMAKE_INSTALL_INCLUDEDIR}/h2okv/llama.cpp")
    set_target_properties(h2okv_llama_shared PROPERTIES INSTALL_RPATH "$ORIGIN;$ORIGIN/h2okv")
    set_target_properties(h2okv_cli PROPERTIES INSTALL_RPATH "$ORIGIN/../${private_libdir}")
  else()
    set(llama_package_libraries "${LlamaCpp_LIBRARIES}")
    set(llama_package_includes "${LlamaCpp_INCLUDE_DIRS}")
    set_target_properties(h2okv_llama_shared PROPERTIES INSTALL_RPATH "$ORIGIN" INSTALL_RPATH_USE_LINK_PATH ON)
    set_target_properties(h2okv_cli PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  endif()

  list(GET llama_package_libraries 0 first)
  get_filename_component(dir "${first}" DIRECTORY)
  list(TRANSFORM llama_package_includes PREPEND "-I" OUTPUT_VARIABLE llama_pc_cflags)
  set(llama_pc_libs ${llama_package_libraries} "-Wl,-rpath,${dir}")
  foreach(flags llama_pc_cflags llama_pc_libs)
    list(JOIN ${flags} " " ${flags})
    string(REPLACE "PACKAGE_PREFIX_DIR" "prefix" ${flags} "${${flags}}")
  endforeach()
  configure_file(cmake/h2okv_llama.pc.in h2okv_llama.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/h2okv_llama.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  install(FILES include/h2okv/llama.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/h2okv)
  install(TARGETS h2okv_llama_shared EXPORT h2okv-targets)
endif()

install(TARGETS h2okv h2okv_shared EXPORT h2okv-targets)
install(TARGETS h2okv_cli)
install(FILES include/h2okv/h2okv.h include/h2okv/advanced.h include/h2okv/attention.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/h2okv)
install(EXPORT h2okv-targets NAMESPACE h2okv:: DESTINATION ${package_dir})

configure_file(cmake/h2okv.pc.in h2okv.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/h2okv.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
configure_package_config_file(cmake/h2okv-config.cmake.in h2okv-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(h2okv-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/h2okv-config.cmake ${PROJECT_BINARY_DIR}/h2okv-config-version.cmake
        DESTINATION ${package_dir})

file(GLOB pages man/*.1 man/*.3)
foreach(page IN LISTS pages)
  get_filename_component(section ${page} LAST_EXT)
  string(SUBSTRING ${section} 1 1 section)
  install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
endforeach()
