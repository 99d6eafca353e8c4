# Language level, warnings, sanitizers, optional CUDA.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

option(SPILLWAY_TESTS "build the tests" ON)
option(SPILLWAY_BENCH "build the benchmarks" ON)
set(SPILLWAY_CUDA AUTO CACHE STRING "AUTO, ON or OFF")
set(SPILLWAY_SANITIZE "" CACHE STRING "value of -fsanitize=, for example address,undefined or thread")

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()

add_library(spillway_flags INTERFACE)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # gcc bug 105329: std::string concatenation is taken for overlapping copies.
  target_compile_options(spillway_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
# No fused multiply-add by the compiler, no errno from sqrt: the numbers are part of the contract.
target_compile_options(spillway_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Werror -Wshadow -Wnon-virtual-dtor -Wno-missing-field-initializers
                            -ffp-contract=off -fno-math-errno>)
# nvcc's host compiler gets no -Wpedantic: the code nvcc hands it is not pedantic.
target_compile_options(spillway_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings -Xcompiler=-Wall,-Wextra,-ffp-contract=off,-fno-math-errno>)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_options(spillway_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-march=x86-64-v2>)
endif()
if(SPILLWAY_SANITIZE)
  target_compile_options(spillway_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${SPILLWAY_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all>)
  target_link_options(spillway_flags INTERFACE -fsanitize=${SPILLWAY_SANITIZE})
  if(SPILLWAY_SANITIZE MATCHES "address|thread")
    # gcc 12 reports false maybe-uninitialized inside the standard library once it instruments.
    target_compile_options(spillway_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)
  endif()
endif()

set(SPILLWAY_HAS_CUDA OFF)
if(NOT SPILLWAY_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 90)
    endif()
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION AND CMAKE_CUDA_COMPILER_ID STREQUAL "NVIDIA")
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
      list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
      set(CMAKE_CUDA20_COMPILE_FEATURES cuda_std_20)
    endif()
    set(CMAKE_CUDA_STANDARD 20)
    set(SPILLWAY_HAS_CUDA ON)
  elseif(SPILLWAY_CUDA STREQUAL "ON")
    message(FATAL_ERROR "SPILLWAY_CUDA=ON, but no CUDA compiler was found: put nvcc on PATH or set CUDACXX")
  endif()
endif()
message(STATUS "CUDA: ${SPILLWAY_HAS_CUDA}")
