# Programs that run the GPU's kernels from the PTX that nvcc made of them, without a GPU (tests/ptx/README.md). They are linked from the
# objects and libraries that are there anyway, with a CUDA runtime of the tests' own.
file(GLOB ptx_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/ptx/*.cc)
list(FILTER ptx_sources EXCLUDE REGEX "_test\\.cc$")
set(ptx_runtime "")
foreach(source blas_lt cudnn error_names loading log memory_pools nccl runtime streams times)
  list(APPEND ptx_runtime ${CMAKE_CURRENT_SOURCE_DIR}/emulated_cuda/${source}.cc)
endforeach()
add_library(ptx_cuda SHARED ${ptx_sources} ${ptx_runtime})
target_include_directories(ptx_cuda PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
target_include_directories(ptx_cuda SYSTEM PUBLIC ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(ptx_cuda PRIVATE spillway_flags Threads::Threads PkgConfig::zstd)
# Registers of any type share one memory.
target_compile_options(ptx_cuda PRIVATE -O2 -ftree-vectorize -fno-strict-aliasing)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_options(ptx_cuda PRIVATE -march=x86-64-v3)  # fused multiply-add and f16
endif()
# The libraries that the program opens by name lie beside it: they are this one.
set(ptx_folder ${PROJECT_BINARY_DIR}/ptx)
set_target_properties(ptx_cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${ptx_folder})
foreach(name libcublasLt.so.13 libcublasLt.so.12 libcudnn.so.9 libnccl.so.2)
  add_custom_command(TARGET ptx_cuda POST_BUILD COMMAND ${CMAKE_COMMAND} -E create_symlink $<TARGET_FILE_NAME:ptx_cuda> ${ptx_folder}/${name})
endforeach()

# ptx_program(target libraries...): <target>_ptx, from the target's objects.
function(ptx_program target)
  add_executable(${target}_ptx $<TARGET_OBJECTS:${target}>)
  target_link_libraries(${target}_ptx PRIVATE ptx_cuda ${ARGN})
  # RPATH, which comes before LD_LIBRARY_PATH.
  target_link_options(${target}_ptx PRIVATE LINKER:--no-as-needed LINKER:--disable-new-dtags)
  set_target_properties(${target}_ptx PROPERTIES SPILLWAY_PTX ON LINKER_LANGUAGE CXX CUDA_RUNTIME_LIBRARY None RUNTIME_OUTPUT_DIRECTORY ${ptx_folder} BUILD_RPATH ${ptx_folder})
endfunction()

ptx_program(spillway spillway_app)
target_link_options(spillway_ptx PRIVATE LINKER:--build-id)
set_target_properties(spillway_ptx PROPERTIES OUTPUT_NAME spillway)

# The quick part shares a few processes (ptx:room/Part.k), since each decodes the kernels that it launches. The soak part runs all of it with
# other orders of blocks, warps and copies, and the program: SPILLWAY_PROGRAM is what the tests of test_e2e start.
set(ptx_environment SPILLWAY_EMULATED_GPUS=1 SPILLWAY_TEST_SEPARATE_MEMORY=1 SPILLWAY_PROGRAM=$<TARGET_FILE:spillway_ptx>)
set(ptx_suites "*Twins*:*Gpu*:*Cuda*")
set(ptx_never "*CudnnGraphs*:*Nccl*")  # what asks NVIDIA's own library, and exchanges that fail, whose sums read what never arrived
set(ptx_parts_kernels 6)
set(ptx_parts_optim 3)
foreach(room device ops eager)
  set(ptx_parts_${room} 1)
endforeach()
set(ptx_parts_parallel 0)
foreach(room device kernels ops optim eager parallel)
  get_target_property(libraries test_${room} LINK_LIBRARIES)
  ptx_program(test_${room} ${libraries})
  set(part 0)
  while(part LESS ptx_parts_${room})
    set(environment "GTEST_TOTAL_SHARDS=${ptx_parts_${room}};GTEST_SHARD_INDEX=${part};${ptx_environment}")
    math(EXPR part "${part} + 1")
    add_test(NAME ptx:${room}/Part.${part} COMMAND test_${room}_ptx --gtest_filter=${ptx_suites}-*Soak*:*More*:${ptx_never})
    set_tests_properties(ptx:${room}/Part.${part} PROPERTIES TIMEOUT 600 LABELS quick ENVIRONMENT "${environment}")
  endwhile()
  foreach(seed RANGE 1 5)
    add_test(NAME ptx:${room}/SoakSeed.${seed} COMMAND test_${room}_ptx --gtest_filter=${ptx_suites}-*Soak*:${ptx_never})
    set_tests_properties(ptx:${room}/SoakSeed.${seed} PROPERTIES TIMEOUT 3600 LABELS soak ENVIRONMENT "SPILLWAY_EMULATED_SEED=${seed};${ptx_environment}")
  endforeach()
endforeach()

get_target_property(libraries test_e2e LINK_LIBRARIES)
ptx_program(test_e2e ${libraries})
add_dependencies(test_e2e_ptx spillway_ptx)
add_test(NAME ptx:e2e/SoakProgram COMMAND test_e2e_ptx --gtest_filter=ProgramOnGpu*-*.DoctorLooksAtPeers)
set_tests_properties(ptx:e2e/SoakProgram PROPERTIES TIMEOUT 3600 LABELS soak ENVIRONMENT "${ptx_environment}")

# The interpreter by itself: what instructions compute, and the faults that it must name.
file(GLOB ptx_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/ptx/*_test.cc)
add_executable(test_ptx ${ptx_tests})
target_link_libraries(test_ptx PRIVATE spillway_test_support ptx_cuda)
set_target_properties(test_ptx PROPERTIES BUILD_RPATH ${ptx_folder})
gtest_discover_tests(test_ptx DISCOVERY_TIMEOUT 120 DISCOVERY_MODE PRE_TEST TEST_PREFIX "ptx/" PROPERTIES TIMEOUT 600 LABELS quick)

# This program tests how much of the GPU's memory kernels of rows ask for, and how many instructions attention with masks takes.
file(GLOB costs_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/ptx/costs/*_test.cc)
add_executable(test_costs_ptx ${costs_tests})
target_link_libraries(test_costs_ptx PRIVATE spillway_test_support ptx_cuda spillway_kernels_losses spillway_kernels_sequence spillway_kernels_experts)
target_link_options(test_costs_ptx PRIVATE LINKER:--no-as-needed LINKER:--disable-new-dtags)
set_target_properties(test_costs_ptx PROPERTIES SPILLWAY_PTX ON LINKER_LANGUAGE CXX CUDA_RUNTIME_LIBRARY None BUILD_RPATH ${ptx_folder})
add_test(NAME ptx/RowCosts.KeepTheirLimits COMMAND test_costs_ptx)
set_tests_properties(ptx/RowCosts.KeepTheirLimits PROPERTIES TIMEOUT 600 LABELS quick ENVIRONMENT "${ptx_environment}")
