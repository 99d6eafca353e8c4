# The communicator's suite over sockets: one test of ctest is one start of test_sockets, which starts the ranks. NODES 2: the ranks count as
# two nodes, so that nothing they share is used between them, and meet by TCP.
add_executable(test_sockets sockets/ranks.cc sockets/communicator_sockets_test.cc sockets/death_test.cc
                            parallel/comm/support_communicator.cc parallel/comm/support_communicator_suite.cc
                            parallel/comm/support_communicator_failures.cc)
target_link_libraries(test_sockets PRIVATE spillway_test_support spillway_parallel)
set_target_properties(test_sockets PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)

# ENDS: the rank that a test stops or kills.
function(socket_test name ranks ranks_per_node label filter)
  cmake_parse_arguments(TEST "" "ENDS" "" ${ARGN})
  set(test "${build_prefix}parallel/${name}")
  add_test(NAME ${test} COMMAND test_sockets --gtest_brief=1 --gtest_filter=${filter})
  set_tests_properties(${test} PROPERTIES LABELS ${label} TIMEOUT 600 PROCESSORS 2 ENVIRONMENT
    "SPILLWAY_TEST_RANKS=${ranks};SPILLWAY_TEST_RANKS_PER_NODE=${ranks_per_node};SPILLWAY_TEST_ENDS=${TEST_ENDS}")
endfunction()

set(suite "-*Soak*:*Death*")
socket_test(CommunicatorSockets.TwoNodesOfTwoRanks 4 2 quick "${suite}")  # which has all the code of the others
if(NOT SPILLWAY_SANITIZE)
  socket_test(CommunicatorSockets.TwoRanks 2 0 quick "${suite}")
  socket_test(CommunicatorSockets.FourRanks 4 0 quick "${suite}")
  socket_test(CommunicatorSockets.TwoNodesOfOneRank 2 1 quick "${suite}")
endif()
foreach(death KilledRankIsNamedAtOnce KilledRankFailsItsMessages StoppedRankIsNamed)
  socket_test(SocketDeath.${death}OnOneNode 4 0 quick "*Death*${death}*" ENDS 1)
  socket_test(SocketDeath.${death}OnTwoNodes 4 2 quick "*Death*${death}*" ENDS 1)
endforeach()
socket_test(SocketDeath.AllStoppedTogetherGoOn 3 0 quick "*Death.AllStopped*")
if(NOT SPILLWAY_SANITIZE)
  socket_test(SoakCommunicatorSockets.TwoRanks 2 0 soak "*Soak*")
  socket_test(SoakCommunicatorSockets.TwoNodes 2 1 soak "*Soak*")
endif()

# Whoever builds the room's tests, under whichever sanitizer, has these too.
add_dependencies(test_parallel test_sockets)
