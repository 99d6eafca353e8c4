# The plug-in libspillway_mpi.so beside the program, where MPI is there. It has its own copies of what it needs of the rooms, under names that
# nobody else sees.
enable_language(C)  # FindMPI looks for the languages that are on; MPI_CXX drags in deprecated bindings
find_package(MPI COMPONENTS C)
if(MPI_C_FOUND)
  add_library(spillway_mpi MODULE parallel/comm/communicator_mpi.cc)
  target_link_libraries(spillway_mpi PRIVATE spillway_parallel MPI::MPI_C)
  target_link_options(spillway_mpi PRIVATE LINKER:--exclude-libs,ALL)
  set_target_properties(spillway_mpi PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  add_dependencies(spillway spillway_mpi)
  install(TARGETS spillway_mpi LIBRARY DESTINATION lib/spillway COMPONENT mpi)
endif()
