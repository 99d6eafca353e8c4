# libspillway.so for other people's programs: all rooms in one shared library, their headers, and what finds them: find_package(spillway) with
# spillway::spillway, and pkg-config. Everything of the rooms' own that they link stays inside, so that a consumer needs nothing but this.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
get_property(rooms GLOBAL PROPERTY SPILLWAY_ROOMS)
file(CONFIGURE OUTPUT library.cc CONTENT "// Empty: the rooms are all there is.\n")
add_library(spillway_library SHARED ${CMAKE_CURRENT_BINARY_DIR}/library.cc)
set(archives ${rooms})
list(TRANSFORM archives REPLACE "(.+)" "$<TARGET_FILE:\\1>")
target_link_libraries(spillway_library PRIVATE -Wl,--whole-archive ${archives} -Wl,--no-whole-archive spillway_app)
add_dependencies(spillway_library ${rooms})
target_link_options(spillway_library PRIVATE LINKER:--build-id)  # as the program's
target_compile_features(spillway_library INTERFACE cxx_std_20)
target_include_directories(spillway_library INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/spillway>)
set_target_properties(spillway_library PROPERTIES OUTPUT_NAME spillway EXPORT_NAME spillway VERSION ${PROJECT_VERSION} SOVERSION 0)

install(TARGETS spillway_library EXPORT spillway LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
# Not what one .cc alone includes once for each instruction set, nor what needs CUDA's own headers.
set(headers FILES_MATCHING PATTERN "*.h" PATTERN "*_inl.h" EXCLUDE PATTERN "*_cuda.h" EXCLUDE PATTERN "*_paths.h" EXCLUDE)
install(DIRECTORY src/ offload optim parallel DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/spillway COMPONENT development ${headers})
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/spillway)
install(EXPORT spillway NAMESPACE spillway:: FILE spillway-config.cmake DESTINATION ${package} COMPONENT development)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/spillway-config-version.cmake COMPATIBILITY ExactVersion)
file(RELATIVE_PATH to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/spillway.pc.in spillway.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/spillway-config-version.cmake DESTINATION ${package} COMPONENT development)
install(FILES ${PROJECT_BINARY_DIR}/spillway.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
