# The communicator's suite over MPI: one test of ctest is one mpirun. NODES 2: the ranks count as two nodes, so that nothing they share is used
# between them.
add_executable(test_mpi mpi/communicator_mpi_test.cc parallel/comm/support_communicator.cc parallel/comm/support_communicator_suite.cc
                        parallel/comm/support_communicator_failures.cc)
target_link_libraries(test_mpi PRIVATE spillway_test_support spillway_parallel)
set_target_properties(test_mpi PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
add_dependencies(test_mpi spillway_mpi)

function(mpi_test name ranks ranks_per_node label filter)
  set(test "${build_prefix}parallel/${name}")
  add_test(NAME ${test} COMMAND ${MPIEXEC_EXECUTABLE} -n ${ranks} $<TARGET_FILE:test_mpi> --gtest_brief=1 --gtest_filter=${filter})
  # As root, on fewer cores than ranks, unbound; what MPI never frees is no leak of ours, and TSan cannot see its locks.
  set_tests_properties(${test} PROPERTIES LABELS ${label} TIMEOUT 600 PROCESSORS 2 ENVIRONMENT
    "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;OMPI_MCA_rmaps_base_oversubscribe=1;OMPI_MCA_hwloc_base_binding_policy=none;ASAN_OPTIONS=detect_leaks=0;TSAN_OPTIONS=ignore_noninstrumented_modules=1;SPILLWAY_TEST_RANKS_PER_NODE=${ranks_per_node}")
endfunction()

mpi_test(CommunicatorMpi.TwoRanks 2 0 quick "-*Soak*")
mpi_test(CommunicatorMpi.FourRanks 4 0 quick "-*Soak*")
mpi_test(CommunicatorMpi.TwoNodesOfOneRank 2 1 quick "-*Soak*")
mpi_test(CommunicatorMpi.TwoNodesOfTwoRanks 4 2 quick "-*Soak*")
if(NOT SPILLWAY_SANITIZE)
  mpi_test(SoakCommunicatorMpi.TwoRanks 2 0 soak "*Soak*")
  mpi_test(SoakCommunicatorMpi.TwoNodes 2 1 soak "*Soak*")
endif()

# Where the plug-in is not to be found the program says what it looked for, and what would help.
set(alone ${PROJECT_BINARY_DIR}/tests/alone/without/plug_in)
add_test(NAME ${build_prefix}parallel/CommunicatorMpi.NamesThePlugInItMisses
  COMMAND sh -c "mkdir -p ${alone} && cp $<TARGET_FILE:test_mpi> ${alone} && ${alone}/test_mpi --gtest_filter=*AllGather/*")
set_tests_properties(${build_prefix}parallel/CommunicatorMpi.NamesThePlugInItMisses PROPERTIES LABELS quick TIMEOUT 60
  PASS_REGULAR_EXPRESSION "expected libspillway_mpi.so.*plug_in/libspillway_mpi.so: file not found.*this build has no MPI support")

# Whoever builds the room's tests, under whichever sanitizer, has these too.
add_dependencies(test_parallel test_mpi)
