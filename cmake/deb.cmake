# Debian packages of the install tree, by `cpack` (scripts/deb.sh): spillway, the program; spillway-mpi, its plug-in, so that the program does not
# bring MPI along; libspillway-dev, the library and its headers. What they depend on dpkg-shlibdeps reads from them.
set(SPILLWAY_DEB_MAINTAINER "The Spillway developers <spillway@localhost>" CACHE STRING "who makes Debian packages: NAME <MAIL>")
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME spillway)
set(CPACK_PACKAGE_CONTACT "${SPILLWAY_DEB_MAINTAINER}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL program development)
if(TARGET spillway_mpi)
  list(APPEND CPACK_COMPONENTS_ALL mpi)
endif()
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE none)  # scripts/deb.sh packs them again
# What each holds beside the installed files: cmake/deb_tree.cmake.
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/deb_tree.cmake)
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_BINARY_DIR}/deb_source.cmake)
file(CONFIGURE OUTPUT deb_source.cmake CONTENT "set(SPILLWAY_SOURCE \"${PROJECT_SOURCE_DIR}\")\n")

set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME spillway)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS spillway-mpi)
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION "trains models that do not fit
Weights, gradients and optimizer state each live in device memory, host
memory or on NVMe, under hard budgets, on a plan that is made, checked and
printed before step 1. Where they live never changes the numbers, and a run
survives being killed.")

set(CPACK_DEBIAN_MPI_PACKAGE_NAME spillway-mpi)
set(CPACK_DEBIAN_MPI_PACKAGE_SECTION science)
set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "spillway (= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")
set(CPACK_DEBIAN_MPI_PACKAGE_RECOMMENDS openmpi-bin)
set(CPACK_COMPONENT_MPI_DESCRIPTION "ranks over Open MPI for spillway
The plug-in by which ranks that mpirun or srun starts meet through MPI.
Without it they meet through sockets.")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libspillway-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
# In place of the scripts by which CPack would have ldconfig run.
file(CONFIGURE OUTPUT deb/triggers CONTENT "activate-noawait ldconfig\n")
file(CONFIGURE OUTPUT deb/shlibs CONTENT "libspillway 0 libspillway-dev (= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})\n")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_CONTROL_EXTRA "${PROJECT_BINARY_DIR}/deb/triggers;${PROJECT_BINARY_DIR}/deb/shlibs")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "spillway as a C++ library
The shared library with its headers: tensors, autograd, models, update
rules, and training on a plan as a call. find_package(spillway) and
pkg-config find it.")
include(CPack)
